//! What is refused before anything is sent, because it could only go wrong.

use redis_locks::{LockError, LockState, Locks};
use testbed::{Server, holds_for};

use crate::support::*;

async fn extending_what_never_expires_is_refused_and_nothing_is_sent() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).never_expires().acquire().await.unwrap();
    let monitor = server.monitor();
    for ttl in [ms(500), LONG] {
        let outcome = guard.extend(ttl).await;
        assert!(matches!(outcome, Err(LockError::InvalidConfig { .. })), "{outcome:?}");
    }
    holds_for(ms(200), "nothing is sent", || monitor.count(WIRE) == 0);
    assert_eq!(server.pttl(WIRE), Some(-1), "it still never expires");
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.unwrap();
    server.assert_clean();
}

both_paths!(on 2 threads: extending_what_never_expires_is_refused_and_nothing_is_sent);

fn is_invalid_key<T: std::fmt::Debug>(outcome: Result<T, LockError>) -> bool {
    matches!(outcome, Err(LockError::InvalidKey { .. }))
}

fn control_characters_are_refused(locks: &Locks) {
    for key in ["x\0", "\0x", "x\u{0}2", "main\0number"] {
        for request in [
            locks.mutex(key),
            locks.read(key),
            locks.write(key),
            locks.permit(key, 2),
            locks.all([key]),
        ] {
            assert!(is_invalid_key(request.blocking_try_acquire()), "{key:?}");
        }
        assert!(is_invalid_key(locks.blocking_status(key)), "{key:?}");
    }
}

/// Every reader and permit has a lock of its own here, known by its key and a number. No name of a
/// mutex is such a lock's.
fn no_mutex_is_taken_for_a_reader(locks: &Locks) {
    let readers: Vec<_> = (0..3).map(|_| locks.read("x").blocking_acquire().unwrap()).collect();
    let mut mutexes = Vec::new();
    for number in 0..64 {
        for key in [format!("x\u{1}{number}"), format!("x:{number}"), format!("x{number}")] {
            if let Ok(guard) = locks.mutex(key).no_wait().blocking_acquire() {
                mutexes.push(guard);
            }
        }
    }
    assert!(mutexes.len() >= 128, "names without control characters are taken");
    drop(mutexes);
    for reader in readers {
        reader.blocking_verify().unwrap();
        reader.blocking_release().unwrap();
    }
    // Nothing of the mutexes was handed to a reader: a writer comes in, and no reader beside it.
    let writer = locks.write("x").wait(PATIENCE).blocking_acquire().unwrap();
    assert!(locks.read("x").blocking_try_acquire().unwrap().is_none());
    writer.blocking_release().unwrap();
}

#[test]
fn names_of_locks_cannot_collide() {
    let server = Server::start();
    for locks in [open(&server.url()), Locks::in_memory()] {
        control_characters_are_refused(&locks);
        no_mutex_is_taken_for_a_reader(&locks);
        locks.blocking_shutdown();
    }
    server.assert_clean();
}
