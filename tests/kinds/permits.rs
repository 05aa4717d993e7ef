//! Permits: at most so many at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use redis_locks::LockError;
use testbed::eventually;

use crate::arena::{
    Arena, PATIENCE, Waiting, cancel_everywhere, crash, is_free, ms, queued, refused, take,
};

#[test]
fn l6_never_more_than_the_limit() {
    for arena in Arena::each() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..10 {
                let (arena, now, most) = (&arena, &now, &most);
                scope.spawn(move || {
                    let locks = if number % 2 == 0 { &arena.one } else { &arena.other };
                    for _ in 0..20 {
                        let guard = take(locks.permit("k", 3).wait(PATIENCE));
                        let holders = now.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(holders, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        guard.blocking_release().unwrap();
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3, "{}", arena.name);
        let all: Vec<_> = (0..3).map(|_| take(arena.one.permit("k", 3))).collect();
        assert!(!is_free(arena.other.permit("k", 3)), "exactly the limit fits");
        drop(all);
        arena.assert_clean();
    }
}

#[test]
fn l6_a_crash_gives_the_permit_back_by_its_lease() {
    for arena in Arena::each() {
        let _kept = take(arena.one.permit("k", 2));
        let start = Instant::now();
        crash(take(arena.one.permit("k", 2).ttl(ms(500)).renew(false)));
        let next = take(arena.other.permit("k", 2).wait(PATIENCE));
        let waited = start.elapsed();
        assert!(waited > ms(490) && waited < ms(5_000), "{}: {waited:?}", arena.name);
        assert!(!is_free(arena.other.permit("k", 2)));
        next.blocking_release().unwrap();
    }
}

#[test]
fn l6_releasing_what_has_expired_frees_nobody_elses() {
    for arena in Arena::each() {
        let expired = take(arena.one.permit("k", 1).ttl(ms(200)).renew(false));
        let other = take(arena.other.permit("k", 1).wait(PATIENCE));
        let error = expired.blocking_release().unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(!is_free(arena.one.permit("k", 1)), "{}", arena.name);
        other.blocking_verify().unwrap();
        other.blocking_release().unwrap();
        arena.assert_clean();
    }
}

#[test]
fn l6_where_limits_differ_the_smaller_counts() {
    for arena in Arena::each() {
        let (one, other) = (&arena.one, &arena.other);
        let first = take(one.permit("k", 4));
        let second = take(one.permit("k", 4));
        assert!(!is_free(other.permit("k", 2)), "two are more than it allows beside itself");
        let third = take(one.permit("k", 4));
        drop((second, third));
        eventually(PATIENCE, "one is left", || is_free(other.permit("k", 2)));
        let narrow = take(other.permit("k", 2));
        assert!(!is_free(one.permit("k", 4)), "{}: beside one that allows two", arena.name);
        narrow.blocking_release().unwrap();
        assert!(is_free(one.permit("k", 4)), "the larger limit counts again");
        first.blocking_release().unwrap();
        arena.assert_clean();
    }
}

#[test]
fn l6_permits_are_handed_over_in_the_order_of_coming() {
    for arena in Arena::each() {
        let first = take(arena.one.permit("k", 2));
        let second = take(arena.one.permit("k", 2));
        let third = Waiting::start(arena.other.permit("k", 2));
        eventually(PATIENCE, "one waits", || queued(&arena, "k") == 1);
        let fourth = Waiting::start(arena.one.permit("k", 2));
        eventually(PATIENCE, "two wait", || queued(&arena, "k") == 2);
        first.blocking_release().unwrap();
        third.must_have_it();
        fourth.must_wait();
        second.blocking_release().unwrap();
        fourth.must_have_it();
        third.finish();
        fourth.finish();
        arena.assert_clean();
    }
}

#[test]
fn nothing_is_left_on_the_server_when_all_have_gone() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let permits: Vec<_> = (0..5).map(|_| take(arena.one.permit("k", 5))).collect();
    assert_eq!(server.run::<usize>("ZCARD lock:k"), 5);
    permits.into_iter().for_each(|permit| permit.blocking_release().unwrap());
    assert_eq!(server.keys(), Vec::<String>::new());
    crash(take(arena.one.permit("k", 5).ttl(ms(300)).renew(false)));
    eventually(PATIENCE, "its lease has ended", || server.keys().is_empty());
}

#[test]
fn no_permits_at_all_are_refused() {
    for arena in Arena::each() {
        let error = refused(arena.one.permit("k", 0));
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
        arena.assert_clean();
    }
}

#[test]
fn a_limit_beyond_all_measure_is_no_limit() {
    for arena in Arena::each() {
        let _one = take(arena.one.permit("k", u32::MAX));
        assert!(is_free(arena.other.permit("k", u32::MAX)));
    }
}

#[tokio::test]
async fn cancelling_an_acquisition_anywhere_leaves_nothing() {
    for arena in Arena::each() {
        cancel_everywhere(&arena, |locks| locks.permit("k", 1)).await;
    }
}
