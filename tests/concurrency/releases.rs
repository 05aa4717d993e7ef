//! What a guard says of its lease, and a release of its hold.

use std::time::Instant;

use redis_locks::{LockError, LossReason};
use testbed::{Proxy, Server, eventually};

use crate::support::*;

async fn ensure_asks_for_as_much_lease_as_is_needed() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(2000)).renew(false).acquire().await.unwrap();
    guard.ensure(ms(0)).unwrap();
    guard.ensure(ms(500)).unwrap();
    let outcome = guard.ensure(ms(2001));
    let Err(LockError::TooShort { key, remaining, needed, .. }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((key.as_str(), needed), (KEY, ms(2001)));
    assert!(remaining > ms(500) && remaining < ms(2000), "{remaining:?}");
    assert!(guard.is_held(), "asking for too much is no loss");
    // As time passes less can be asked for.
    eventually(PATIENCE, "a second is too much", || guard.ensure(ms(1000)).is_err());
    let left = guard.remaining();
    assert!(left > ms(500) && left < ms(1000), "{left:?}");
    guard.ensure(ms(100)).unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

/// The script itself says whose the lock is, also where a manager is busy and short forms are used.
async fn a_release_says_that_somebody_else_has_the_lock() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    for _ in 0..3 {
        let guard = job(&locks).acquire().await.unwrap();
        server.run::<()>("SET lock:job thief PX 30000");
        match guard.release().await {
            Err(LockError::Lost { reason: LossReason::Overwritten { by, .. }, .. }) => {
                assert_eq!(by.to_string(), "thief");
            }
            other => panic!("{other:?}"),
        }
        server.run::<()>("DEL lock:job");
        let guard = job(&locks).acquire().await.unwrap();
        server.run::<()>("DEL lock:job");
        match guard.release().await {
            Err(LockError::Lost { reason: LossReason::Removed { .. }, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    server.assert_clean();
}

/// The first try handed the lock to a waiter, and its answer was cut: the second finds the waiter's
/// token, and that is no loss.
async fn a_release_that_is_tried_again_is_no_loss() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let others = connect(&server.url()).await;
    for round in 0..5 {
        let guard = job(&locks).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&others).wait(PATIENCE).acquire());
        until("a waiter is queued", || server.exists("lock:{lock:job}:~q")).await;
        let cuts = proxy.cuts();
        proxy.cut_reply_to(WIRE);
        let outcome = guard.release().await;
        assert_eq!(proxy.cuts(), cuts + 1, "the answer was cut");
        assert!(outcome.is_ok(), "round {round}: {outcome:?}");
        let theirs = waiting.await.unwrap().unwrap();
        theirs.verify().await.unwrap();
        theirs.release().await.unwrap();
    }
    server.assert_clean();
}

/// One hiccup of the connection is not worth an error.
async fn a_release_is_tried_again_after_a_cut_connection() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    for round in 0..5 {
        let guard = job(&locks).acquire().await.unwrap();
        let start = Instant::now();
        proxy.kill_all();
        let outcome = guard.release().await;
        assert!(outcome.is_ok(), "round {round}: {outcome:?} after {:?}", start.elapsed());
        assert!(!server.exists(WIRE));
    }
    server.assert_clean();
}

both_paths!(
    on 2 threads:
    ensure_asks_for_as_much_lease_as_is_needed,
    a_release_says_that_somebody_else_has_the_lock,
    a_release_that_is_tried_again_is_no_loss,
    a_release_is_tried_again_after_a_cut_connection,
);
