//! What is promised, on every place alike: memory, servers of each family and age, a cluster of one
//! node and of several, a primary that sentinels name.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{LockRequest, Locks, LossReason};
use testbed::{eventually, holds_for};

use crate::arena::{
    Arena, PATIENCE, Waiting, cancel_everywhere, crash, is_free, ms, queued, refused, take,
};
use crate::{is_held, together};

type Make = fn(&Locks) -> LockRequest;

/// Each of them excludes all others of its sort.
const EXCLUSIVE: [Make; 4] = [
    |locks| locks.mutex("mutex").fenced(),
    |locks| locks.write("shared").fenced(),
    |locks| locks.permit("pool", 1),
    |locks| locks.all((0..5).map(|number| format!("all{number}"))).fenced(),
];

fn excludes_and_hands_over(arena: &Arena) {
    for make in EXCLUSIVE {
        let guard = take(make(&arena.one));
        assert!(refused(make(&arena.other).no_wait()).is_busy(), "{}", arena.name);
        let waiting = Waiting::start(make(&arena.other));
        waiting.must_wait();
        guard.blocking_verify().unwrap();
        guard.blocking_release().unwrap();
        waiting.must_have_it();
        waiting.finish();
        let next = take(make(&arena.third()));
        assert_eq!(next.fence().is_some(), next.key() != "pool");
        next.blocking_release().unwrap();
    }
}

fn lets_those_in_together_who_fit(arena: &Arena) {
    let readers = [take(arena.one.read("shared")), take(arena.other.read("shared"))];
    assert!(!is_free(arena.other.write("shared")), "{}", arena.name);
    drop(readers);
    eventually(PATIENCE, "the readers are gone", || is_free(arena.other.write("shared")));
    let permits = [take(arena.one.permit("pool", 2)), take(arena.other.permit("pool", 2))];
    assert!(!is_free(arena.one.permit("pool", 2)), "{}", arena.name);
    drop(permits);
    eventually(PATIENCE, "the permits are back", || is_free(arena.one.permit("pool", 2)));
}

fn serves_in_order_of_coming(arena: &Arena) {
    let holder = take(arena.one.mutex("order"));
    let managers = [arena.other.clone(), arena.third()];
    let mut waiting = Vec::new();
    for (number, locks) in managers.iter().enumerate() {
        waiting.push(Waiting::start(locks.mutex("order")));
        eventually(PATIENCE, "it waits", || queued(arena, "order") == number + 1);
        waiting[number].must_wait();
    }
    holder.blocking_release().unwrap();
    for one in waiting {
        one.must_have_it();
        one.finish();
    }
}

fn fences_rise(arena: &Arena) {
    let mut last = 0;
    for turn in 0..6 {
        let locks = if turn % 2 == 0 { &arena.one } else { &arena.other };
        for request in [locks.mutex("fence"), locks.all(["fence", "fence2", "fence3"])] {
            let guard = take(request.fenced());
            let fence = guard.fence().unwrap();
            assert!(fence > last, "{}: {fence} after {last}", arena.name);
            last = fence;
            guard.blocking_release().unwrap();
        }
    }
}

fn leases_are_kept_and_end(arena: &Arena) {
    let short = |make: &Make, ttl| make(&arena.one).ttl(ms(ttl));
    let kept: Vec<_> = EXCLUSIVE.iter().map(|make| take(short(make, 2_500))).collect();
    // More than two leases.
    let what = format!("{}: they are renewed", arena.name);
    holds_for(ms(5_200), &what, || kept.iter().all(is_held));
    for (make, guard) in EXCLUSIVE.iter().zip(kept) {
        assert!(refused(make(&arena.other).no_wait()).is_busy(), "{}", arena.name);
        guard.blocking_release().unwrap();
    }
    EXCLUSIVE.iter().for_each(|make| crash(take(short(make, 600).renew(false))));
    let start = Instant::now();
    for make in EXCLUSIVE {
        take(make(&arena.other).wait(PATIENCE)).blocking_release().unwrap();
    }
    assert!(start.elapsed() < ms(2_500), "{}: {:?}", arena.name, start.elapsed());
}

fn can_be_looked_at_and_ended(arena: &Arena) {
    for key in ["order:1", "order:2"] {
        let held = take(arena.one.mutex(key));
        assert!(arena.other.blocking_status(key).unwrap().is_held(), "{}", arena.name);
        assert!(arena.other.blocking_force_release(key, "by hand").unwrap());
        let start = Instant::now();
        eventually(PATIENCE, "the holder learns of its loss", || !is_held(&held));
        assert!(start.elapsed() < Duration::from_secs(8), "before its renewal is due");
        let reason = pollster::block_on(held.lost());
        assert!(matches!(reason, LossReason::Removed { .. }), "{}: {reason:?}", arena.name);
    }
    let guards = [take(arena.one.mutex("listed:1")), take(arena.other.write("listed:2"))];
    let mut keys: Vec<_> =
        arena.one.blocking_list("listed:*").map(|status| status.unwrap().key).collect();
    keys.sort();
    assert_eq!(keys, ["listed:1", "listed:2"], "{}", arena.name);
    guards.into_iter().for_each(|guard| guard.blocking_release().unwrap());
}

/// All want all locks, and no worker finds another one inside.
fn nobody_meets_anybody(arena: &Arena) {
    let inside: [AtomicU64; EXCLUSIVE.len()] = Default::default();
    let third = arena.third();
    thread::scope(|scope| {
        for number in 0..6 {
            let locks = [&arena.one, &arena.other, &third][number % 3];
            let inside = &inside;
            scope.spawn(move || {
                for turn in 0..20 {
                    let which = (number + turn) % EXCLUSIVE.len();
                    let guard = take(EXCLUSIVE[which](locks).wait(PATIENCE));
                    assert_eq!(inside[which].fetch_add(1, SeqCst), 0, "two are inside");
                    thread::yield_now();
                    inside[which].fetch_sub(1, SeqCst);
                    guard.blocking_release().unwrap();
                }
            });
        }
    });
}

fn keeps_what_is_promised(arena: &Arena) {
    excludes_and_hands_over(arena);
    lets_those_in_together_who_fit(arena);
    serves_in_order_of_coming(arena);
    fences_rise(arena);
    leases_are_kept_and_end(arena);
    can_be_looked_at_and_ended(arena);
    nobody_meets_anybody(arena);
    together::tasks_with_sets_in_any_order_progress(&[&arena.one, &arena.other]);
    arena.assert_clean();
}

macro_rules! on_each_place {
    ($($place:ident: $arena:expr),+ $(,)?) => {$(
        mod $place {
            use super::{Arena, EXCLUSIVE, cancel_everywhere};

            #[test]
            fn keeps_what_is_promised() {
                let arena: Option<Arena> = $arena;
                let Some(arena) = arena else { testbed::skip!("there is no such server") };
                super::keeps_what_is_promised(&arena);
            }

            #[tokio::test]
            async fn a_call_that_is_dropped_at_any_await_leaves_nothing() {
                let arena: Option<Arena> = $arena;
                let Some(arena) = arena else { testbed::skip!("there is no such server") };
                for make in EXCLUSIVE {
                    cancel_everywhere(&arena, make).await;
                }
            }
        }
    )+};
}

on_each_place! {
    memory: Some(Arena::memory()),
    redis: Some(Arena::server()),
    redis_6: Arena::redis_6(),
    valkey: Arena::valkey(),
    one_node: Arena::clusters().into_iter().next(),
    one_node_of_valkey: Arena::clusters().into_iter().nth(1),
    cluster: Some(Arena::cluster()),
    cluster_of_valkey: Arena::valkey_cluster(),
    sentinels: Some(Arena::sentinels()),
}
