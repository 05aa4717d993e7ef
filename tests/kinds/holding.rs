//! How long locks are held: at least, at most, for ever; and values that were left without an end.

use std::time::Instant;

use redis_locks::{Guard, LockError, LockRequest, LockState, Locks, LossReason};
use testbed::eventually;

use crate::arena::{
    Arena, PATIENCE, Waiting, crash, finish_all, is_free, log, ms, queued, refused, take,
};

type Make = fn(&Locks) -> LockRequest;

/// Each kind, and one of the same key that it keeps waiting.
const KINDS: [(&str, Make, Make); 5] = [
    ("mutex", |locks| locks.mutex("k"), |locks| locks.mutex("k")),
    ("read", |locks| locks.read("k"), |locks| locks.write("k")),
    ("write", |locks| locks.write("k"), |locks| locks.read("k")),
    ("permit", |locks| locks.permit("k", 1), |locks| locks.permit("k", 1)),
    ("all", |locks| locks.all(["j", "k"]), |locks| locks.mutex("j")),
];

#[test]
fn min_hold_keeps_others_out_and_nobody_waiting_at_the_release() {
    for arena in Arena::each() {
        for (kind, make, other) in KINDS {
            for end in [|guard: Guard| guard.blocking_release().unwrap(), drop::<Guard>] {
                let start = Instant::now();
                let guard = take(make(&arena.one).min_hold(ms(700)));
                end(guard);
                let kept = !is_free(other(&arena.other));
                assert!(kept, "{}: {kind}: the release waited, or others got in", arena.name);
                take(other(&arena.other).wait(PATIENCE)).blocking_release().unwrap();
                let held = start.elapsed();
                assert!(held > ms(650) && held < ms(5_000), "{}: {kind}: {held:?}", arena.name);
            }
        }
        arena.assert_clean();
    }
}

#[test]
fn min_hold_that_has_passed_changes_nothing() {
    for arena in Arena::each() {
        let guard = take(arena.one.mutex("k").min_hold(ms(50)));
        let start = Instant::now();
        eventually(PATIENCE, "it has passed", || start.elapsed() > ms(60));
        let next = Waiting::start(arena.other.mutex("k"));
        eventually(PATIENCE, "one waits", || queued(&arena, "k") == 1);
        guard.blocking_release().unwrap();
        next.must_have_it();
        next.finish();
        arena.assert_clean();
    }
}

#[test]
fn max_hold_ends_the_hold_although_the_guard_lives() {
    for arena in Arena::each() {
        for (kind, make, other) in KINDS {
            let start = Instant::now();
            let guard = take(make(&arena.one).max_hold(ms(600)));
            take(other(&arena.other).wait(PATIENCE)).blocking_release().unwrap();
            let held = start.elapsed();
            assert!(held > ms(500) && held < ms(5_000), "{}: {kind}: {held:?}", arena.name);
            assert_eq!(guard.state(), LockState::Lost, "{kind}");
            let error = guard.blocking_release().unwrap_err();
            assert!(
                matches!(error, LockError::Lost { reason: LossReason::HoldLimit, .. }),
                "{kind}: {error}"
            );
        }
        arena.assert_clean();
    }
}

#[test]
fn never_expires_stands_without_a_ttl_until_its_owner_releases_it() {
    for arena in Arena::each() {
        let guard = take(arena.one.mutex("k").never_expires());
        if let Some(server) = &arena.server {
            assert_eq!(server.pttl("lock:k"), Some(-1));
        }
        let error = refused(arena.other.mutex("k").repair_orphan(ms(100)).wait(ms(300)));
        assert!(error.is_busy(), "it stands there on purpose: {error}");
        if let Some(server) = &arena.server {
            assert_eq!(server.pttl("lock:k"), Some(-1), "and is not repaired");
        }
        let next = Waiting::start(arena.other.mutex("k"));
        eventually(PATIENCE, "one waits", || queued(&arena, "k") == 1);
        guard.blocking_verify().unwrap();
        guard.blocking_release().unwrap();
        next.must_have_it();
        next.finish();

        crash(take(arena.one.mutex("k").never_expires()));
        assert!(!is_free(arena.other.mutex("k")));
        assert!(arena.other.blocking_force_release("k", "its holder died").unwrap());
        eventually(PATIENCE, "it is free", || is_free(arena.other.mutex("k")));
        arena.assert_clean();
    }
}

#[test]
fn only_a_mutex_never_expires() {
    let locks = Locks::in_memory();
    for request in [locks.read("k"), locks.write("k"), locks.permit("k", 1), locks.all(["k"])] {
        let error = refused(request.never_expires());
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
    }
}

#[test]
fn min_hold_beyond_what_is_held_is_refused() {
    for (_, make, _) in KINDS {
        let locks = Locks::in_memory();
        let ask = || make(&locks).ttl(ms(1_000)).min_hold(ms(5_000));
        let error = refused(ask().renew(false));
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
        let error = refused(ask().max_hold(ms(4_000)));
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
        drop(take(ask()));
    }
}

#[test]
fn a_value_without_a_ttl_is_reported_and_left_alone() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    server.run::<()>("SET lock:k left-behind");
    for request in [arena.one.mutex("k"), arena.one.all(["j", "k"])] {
        let start = Instant::now();
        let error = refused(request.wait(PATIENCE));
        assert!(start.elapsed() < ms(2_000), "it is not waited for");
        assert!(matches!(&error, LockError::Backend { source, .. } if !source.is_retryable()));
        assert!(error.to_string().contains("left-behind"), "{error}");
    }
    assert_eq!(server.pttl("lock:k"), Some(-1));
    server.run::<()>("DEL lock:k");
    arena.assert_clean();
}

#[test]
fn repair_orphan_gives_it_one_once_and_says_so() {
    log::listen();
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    let requests: [Make; 2] = [|locks| locks.mutex("k"), |locks| locks.all(["j", "k"])];
    for (round, make) in requests.into_iter().enumerate() {
        server.run::<()>(&format!("SET lock:k left-behind-{round}"));
        let ask = |locks| make(locks).repair_orphan(ms(500));
        assert!(!is_free(ask(&arena.one)), "no shortcut: it holds for that long");
        let left = server.pttl("lock:k").unwrap();
        assert!((1..=500).contains(&left), "{left}");
        let start = Instant::now();
        finish_all(vec![Waiting::start(ask(&arena.one)), Waiting::start(ask(&arena.other))]);
        assert!(start.elapsed() < ms(2_500), "{:?}", start.elapsed());
        let value = format!("left-behind-{round}");
        assert_eq!(log::count(&["without a ttl", &value]), 1, "it is said once");
        arena.assert_clean();
    }
}

#[test]
fn a_foreign_value_with_a_ttl_simply_holds() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    for request in [arena.one.mutex("k"), arena.one.all(["j", "k"])] {
        let start = Instant::now();
        server.run::<()>("SET lock:k somebody PX 700");
        let guard = take(request.wait(PATIENCE));
        assert!(start.elapsed() > ms(690) && start.elapsed() < ms(2_500), "{:?}", start.elapsed());
        guard.blocking_release().unwrap();
    }
    arena.assert_clean();
}

#[test]
fn fair_off_takes_a_free_mutex_ahead_of_the_queue() {
    let arena = Arena::server();
    let server = arena.server.as_ref().unwrap();
    // The next waiter gets no message and looks by itself, because the holder has died.
    let now: Vec<u64> = server.run("TIME");
    server.run::<()>("ZADD lock:{lock:k}:~q 1 rl1.waits");
    let mut entry = redis::cmd("HSET");
    let place = format!("{} -", (now[0] + 60) * 1000);
    server.query::<()>(entry.arg("lock:{lock:k}:~w").arg("rl1.waits").arg(place)).unwrap();
    // With a fencing number, so that it is not taken by a bare `SET NX`.
    assert!(is_free(arena.one.mutex("k").fenced().fair(false)), "it is free");
    assert!(!is_free(arena.one.mutex("k").fenced()), "but it is another waiter's turn");
    assert_eq!(server.get("lock:k").as_deref(), Some("rl1.waits"));
    assert!(!is_free(arena.other.mutex("k").fenced().fair(false)), "what is held stays held");
    eventually(PATIENCE, "the one who was granted it is dead", || is_free(arena.other.mutex("k")));
    server.run::<()>("DEL lock:{lock:k}:~q lock:{lock:k}:~w");
    arena.assert_clean();
}

#[test]
fn limits_that_differ_are_logged() {
    log::listen();
    for arena in Arena::each() {
        let key = format!("limits({})", arena.name);
        let _wide = take(arena.one.permit(&key, 4));
        for _ in 0..3 {
            drop(take(arena.other.permit(&key, 2).wait(PATIENCE)));
        }
        let warnings = || log::count(&[&key, "limit=2", "other=4"]);
        eventually(PATIENCE, "it is logged", || warnings() > 0);
        assert_eq!(warnings(), 1, "{}", arena.name);
    }
}

#[tokio::test]
async fn l13_a_nested_acquisition_whose_answer_is_lost_counts_once() {
    let server = testbed::Server::start();
    let proxy = testbed::Proxy::to(server.port());
    let (locks, other) = (Locks::open(proxy.url()).unwrap(), Locks::open(server.url()).unwrap());
    for round in 0..5 {
        proxy.cut_reply_once();
        let request = locks.mutex("k").wait(PATIENCE);
        let deep = request
            .run(async |_| {
                proxy.cut_reply_once();
                let inner = locks.mutex("k").reentrant();
                inner.run(async |_| locks.mutex("k").reentrant().run(async |_| 3).await).await
            })
            .await;
        assert_eq!(deep.unwrap().unwrap().unwrap(), 3, "{round}");
        let next = other.mutex("k").wait(PATIENCE).acquire().await.unwrap();
        next.release().await.unwrap();
    }
    proxy.pass();
    server.assert_clean();
}
