//! `same`: one key never stands for two inputs.

use std::time::Duration;

use redis_locks::{LockError, LockRequest, Locks};
use testbed::eventually;

use crate::arena::{Arena, PATIENCE, Waiting, is_free, queued, take};

const HOUR: Duration = Duration::from_secs(3_600);

fn same(locks: &Locks, bytes: &str) -> LockRequest {
    locks.mutex("k").once(HOUR).same(bytes)
}

fn arenas() -> Vec<Arena> {
    let mut arenas = Arena::each();
    arenas.push(Arena::without_scripts());
    arenas.extend(Arena::clusters());
    arenas
}

#[track_caller]
fn differs(request: LockRequest) {
    let error = request.blocking_acquire().unwrap_err();
    assert_eq!(error.key(), Some("k"));
    assert!(matches!(error, LockError::Mismatch { .. }), "{error:?}");
    assert!(!error.is_busy() && !error.is_retryable() && !error.is_lost(), "{error}");
}

#[test]
fn other_input_is_refused_while_a_call_runs_and_when_it_has_done_it() {
    for arena in arenas() {
        let guard = take(same(&arena.one, "a"));
        for locks in [&arena.one, &arena.other] {
            differs(same(locks, "b"));
            differs(same(locks, "b").no_wait());
            let busy = same(locks, "a").no_wait().blocking_acquire().unwrap_err();
            assert!(busy.is_busy(), "{}: {busy:?}", arena.name);
            // A call without input differs from none.
            let busy = locks.mutex("k").once(HOUR).no_wait().blocking_acquire().unwrap_err();
            assert!(busy.is_busy(), "{}: {busy:?}", arena.name);
        }
        guard.blocking_complete().unwrap();
        for locks in [&arena.one, &arena.other] {
            differs(same(locks, "b"));
            let done = same(locks, "a").blocking_acquire().unwrap_err();
            assert!(matches!(done, LockError::Done { .. }), "{}: {done:?}", arena.name);
        }
        // The label is what it was.
        let label = take(arena.one.mutex("other").label("x")).token().to_string();
        assert!(!label.contains("%="), "{label}");
        let done = arena.other.blocking_status("k").unwrap().done.unwrap();
        assert!(done.by.is_some_and(|by| !by.contains('%') && by.contains('/')), "{}", arena.name);
        assert!(arena.other.blocking_force_release("k", "over").unwrap());
        arena.assert_clean();
    }
}

#[test]
fn waiters_with_other_input_are_refused_when_one_gets_the_lock() {
    for arena in arenas() {
        let third = arena.third();
        let guard = take(third.mutex("k"));
        let first = Waiting::start(same(&arena.one, "a"));
        eventually(PATIENCE, "it waits", || queued(&arena, "k") == 1);
        let wait = |locks: &Locks, bytes| {
            let request = same(locks, bytes);
            std::thread::spawn(move || request.blocking_acquire().map(drop))
        };
        // One in the process that gets the lock, one in another.
        let others = [wait(&arena.one, "b"), wait(&arena.other, "b")];
        let count = || arena.one.blocking_status("k").unwrap().waiters.len();
        eventually(PATIENCE, "all wait", || count() == 3);
        guard.blocking_release().unwrap();
        first.must_have_it();
        for other in others {
            let ended = other.join().unwrap();
            assert!(matches!(ended, Err(LockError::Mismatch { .. })), "{}: {ended:?}", arena.name);
        }
        first.finish();
        assert!(is_free(same(&arena.other, "b")), "a failure leaves nothing: {}", arena.name);
        arena.assert_clean();
    }
}

#[test]
fn same_without_once_or_share_is_refused() {
    let locks = Locks::in_memory();
    let wrong = locks.mutex("k").same("a").blocking_acquire().unwrap_err();
    assert!(wrong.to_string().contains("same has no meaning without `once` or `share`"), "{wrong}");
}
