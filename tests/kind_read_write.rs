//! Locks for reading and writing.

mod arena;

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use arena::{Arena, LONG, is_free, ms, refused, take};
use redis_locks::LockError;
use testbed::eventually;

#[test]
fn readers_share_and_a_writer_is_alone() {
    for arena in Arena::each() {
        let (one, other) = (&arena.one, &arena.other);
        let first = take(one.read("k"));
        let second = take(other.read("k"));
        assert!(!is_free(one.write("k")), "{}", arena.name);
        first.blocking_release().unwrap();
        assert!(!is_free(one.write("k")), "{}", arena.name);
        second.blocking_release().unwrap();
        let writer = take(one.write("k"));
        assert!(!is_free(other.read("k")) && !is_free(other.write("k")), "{}", arena.name);
        writer.blocking_release().unwrap();
        assert!(is_free(other.read("k")));
        arena.assert_clean();
    }
}

#[test]
fn a_waiting_writer_is_let_in_by_the_last_reader() {
    for arena in Arena::each() {
        let first = take(arena.one.read("k"));
        let second = take(arena.other.read("k"));
        let (told, writes) = mpsc::channel();
        let request = arena.other.write("k").wait(LONG);
        let writer = thread::spawn(move || {
            let guard = take(request);
            told.send(Instant::now()).unwrap();
            guard.blocking_release().unwrap();
        });
        first.blocking_release().unwrap();
        assert!(writes.recv_timeout(ms(100)).is_err(), "{}: one still reads", arena.name);
        let released = Instant::now();
        second.blocking_release().unwrap();
        let written = writes.recv_timeout(LONG).unwrap();
        // The lease is 30 s and the look a second: less than half of that is the message.
        assert!(written - released < ms(400), "{}: {:?}", arena.name, written - released);
        writer.join().unwrap();
        arena.assert_clean();
    }
}

#[test]
fn downgrade_keeps_writers_out_and_lets_readers_in() {
    for arena in Arena::each() {
        let writer = take(arena.one.write("k").fenced());
        let (token, fence) = (writer.token().clone(), writer.fence());
        let (told, turns) = mpsc::channel();
        let wait = |name: &'static str, request: redis_locks::Request| {
            let told = told.clone();
            thread::spawn(move || {
                let guard = take(request);
                told.send(name).unwrap();
                guard.blocking_release().unwrap();
            })
        };
        let reads = wait("reader", arena.other.read("k").wait(LONG));
        assert!(turns.recv_timeout(ms(100)).is_err());
        let reader = writer.blocking_downgrade().unwrap();
        assert_eq!((reader.token(), reader.fence()), (&token, fence));
        assert_eq!(turns.recv_timeout(LONG), Ok("reader"), "{}", arena.name);
        reads.join().unwrap();
        assert!(!is_free(arena.other.write("k")));
        reader.blocking_verify().unwrap();
        let error = reader.blocking_downgrade().unwrap_err();
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
        eventually(LONG, "a failed downgrade releases", || is_free(arena.other.write("k")));
        arena.assert_clean();
    }
}

#[test]
fn kinds_do_not_mix_and_nothing_is_altered() {
    for arena in Arena::each() {
        let (one, other) = (&arena.one, &arena.other);
        type Make = fn(&redis_locks::Locks) -> redis_locks::Request;
        let kinds: [(&str, Make); 4] = [
            ("mutex", |locks| locks.mutex("k")),
            ("read", |locks| locks.read("k")),
            ("permit", |locks| locks.permit("k", 3)),
            ("all", |locks| locks.all(["j", "k"])),
        ];
        for (held, hold) in &kinds {
            let guard = take(hold(one));
            for (asked, ask) in &kinds {
                let same = held == asked
                    || (["mutex", "all"].contains(held) && ["mutex", "all"].contains(asked));
                if same {
                    continue;
                }
                let error = refused(ask(other).wait(LONG));
                assert!(
                    matches!(error, LockError::InvalidConfig { .. })
                        && error.to_string().contains("`"),
                    "{}: {asked} while {held}: {error}",
                    arena.name
                );
            }
            guard.blocking_verify().unwrap();
            guard.blocking_release().unwrap();
        }
        arena.assert_clean();
    }
}
