//! Several keys at once, all or none.

use std::time::Instant;

use redis_locks::{LockError, LockState};
use testbed::{eventually, must_be_prompt};

use crate::arena::{
    Arena, NOTIFIED, PATIENCE, Waiting, cancel_everywhere, crash, is_free, ms, queued, refused,
    take,
};
use crate::together;

#[test]
fn all_keys_are_taken_and_given_back_together() {
    for arena in Arena::each() {
        let guard = take(arena.one.all(["c", "a", "b", "a"]));
        assert_eq!(guard.key(), "a, b, c");
        for key in ["a", "b", "c"] {
            assert!(!is_free(arena.other.mutex(key)), "{}: {key}", arena.name);
        }
        assert!(!is_free(arena.other.all(["c", "d"])));
        assert!(is_free(arena.other.mutex("d")), "an attempt in vain leaves nothing");
        guard.blocking_verify().unwrap();
        guard.blocking_release().unwrap();
        assert!(is_free(arena.other.all(["a", "b", "c", "d"])));
        arena.assert_clean();
    }
}

#[test]
fn none_is_held_while_it_waits_for_another_at_first() {
    for arena in Arena::each() {
        must_be_prompt(NOTIFIED, arena.name, || {
            let busy = take(arena.one.mutex("b"));
            let both = Waiting::start(arena.other.all(["a", "b"]));
            eventually(PATIENCE, "it waits for the busy one", || queued(&arena, "b") == 1);
            assert!(is_free(arena.one.mutex("a")), "{}", arena.name);
            busy.blocking_release().unwrap();
            let released = Instant::now();
            both.must_have_it();
            let took = released.elapsed();
            both.finish();
            took
        });
        arena.assert_clean();
    }
}

#[test]
fn l7_many_tasks_with_sets_in_any_order_neither_meet_nor_block_for_ever() {
    for arena in Arena::each() {
        together::tasks_with_sets_in_any_order_progress(&[&arena.one, &arena.other]);
        arena.assert_clean();
    }
}

#[test]
fn l7_a_call_for_many_keys_does_not_starve() {
    for arena in Arena::each() {
        together::who_needs_many_keys_does_not_starve(&arena, 2);
    }
}

#[test]
fn loss_of_one_is_loss_of_all() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let guard = take(arena.one.all(["a", "b", "c"]).ttl(ms(600)));
    server.run::<()>("DEL lock:b");
    eventually(PATIENCE, "the next renewal finds out", || guard.state() == LockState::Lost);
    eventually(PATIENCE, "the rest is given back", || is_free(arena.other.all(["a", "c"])));
    assert!(guard.blocking_release().unwrap_err().is_lost());

    let guard = take(arena.one.all(["a", "b"]));
    server.run::<()>("SET lock:a foreign PX 5000");
    assert!(guard.blocking_verify().unwrap_err().is_lost());
    assert_eq!(server.get("lock:a").as_deref(), Some("foreign"), "what is not ours stays");
    server.run::<()>("DEL lock:a");
    drop(guard);
    arena.assert_clean();
}

#[test]
fn releasing_by_force_what_is_one_of_several_ends_all() {
    for arena in Arena::each() {
        together::releasing_one_by_force_ends_all(&arena);
    }
}

#[test]
fn a_crash_frees_all_by_the_lease() {
    for arena in Arena::each() {
        let start = Instant::now();
        crash(take(arena.one.all(["a", "b"]).ttl(ms(500)).renew(false)));
        take(arena.other.all(["b", "a"]).wait(PATIENCE)).blocking_release().unwrap();
        assert!(start.elapsed() > ms(490) && start.elapsed() < ms(5_000), "{:?}", start.elapsed());
        arena.assert_clean();
    }
}

#[test]
fn release_lets_those_in_who_wait_for_each_key() {
    for arena in Arena::each() {
        must_be_prompt(NOTIFIED, arena.name, || {
            let both = take(arena.one.all(["a", "b"]));
            let first = Waiting::start(arena.other.mutex("a"));
            let second = Waiting::start(arena.other.mutex("b"));
            for key in ["a", "b"] {
                eventually(PATIENCE, "one waits for each", || queued(&arena, key) == 1);
            }
            let released = Instant::now();
            both.blocking_release().unwrap();
            first.must_have_it();
            second.must_have_it();
            let took = released.elapsed();
            first.finish();
            second.finish();
            took
        });
        arena.assert_clean();
    }
}

#[test]
fn a_fence_is_above_those_of_every_key() {
    for arena in Arena::each() {
        // Each key counts by itself; only who has both is above both.
        let mut last = [0, 0];
        for turn in 0..20 {
            let (request, keys) = match turn % 3 {
                0 => (arena.one.mutex("a"), 0..=0),
                1 => (arena.other.mutex("b"), 1..=1),
                _ => (arena.one.all(["b", "a"]), 0..=1),
            };
            let guard = take(request.fenced());
            let fence = guard.fence().unwrap();
            for before in &mut last[keys] {
                assert!(fence > *before, "{}: {turn}", arena.name);
                *before = fence;
            }
            guard.blocking_release().unwrap();
        }
    }
}

#[test]
fn at_maxmemory_it_is_renewed_and_released() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let guard = take(arena.one.all(["a", "b"]).ttl(ms(1_200)));
    let next = Waiting::start(arena.other.all(["b", "c"]));
    eventually(PATIENCE, "the next waits", || queued(&arena, "b") == 1);
    server.run::<()>("CONFIG SET maxmemory 1");
    let start = Instant::now();
    eventually(PATIENCE, "several leases have passed", || start.elapsed() > ms(2_500));
    assert_eq!(guard.state(), LockState::Held);
    guard.blocking_release().unwrap();
    next.must_have_it();
    next.finish();
    server.run::<()>("CONFIG SET maxmemory 0");
    arena.assert_clean();
}

#[test]
fn no_key_at_all_and_too_many_are_refused() {
    for arena in Arena::each() {
        let none: [&str; 0] = [];
        let many: Vec<String> = (0..129).map(|number| number.to_string()).collect();
        for request in [arena.one.all(none), arena.one.all(many.clone())] {
            let error = refused(request);
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
        }
        let guard = take(arena.one.all(&many[1..]));
        assert!(!is_free(arena.other.mutex("77")));
        guard.blocking_release().unwrap();
        let error = refused(arena.one.all(["a", ""]));
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error}");
        arena.assert_clean();
    }
}

#[tokio::test]
async fn a_nested_call_for_one_of_several_keys_is_an_error() {
    let locks = redis_locks::Locks::in_memory();
    let inner = locks
        .all(["a", "b"])
        .run(async |_| locks.mutex("b").wait(PATIENCE).run(async |_| ()).await)
        .await
        .unwrap();
    assert!(matches!(inner, Err(LockError::Reentrant { .. })), "{inner:?}");
}

#[tokio::test]
async fn cancelling_an_acquisition_anywhere_leaves_nothing() {
    for arena in Arena::each() {
        cancel_everywhere(&arena, |locks| locks.all(["a", "b"])).await;
    }
}
