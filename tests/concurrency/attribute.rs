//! What an annotated function returns when its lock is busy, lost or unreachable, on a real server.

use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, redis_lock};
use testbed::{Proxy, Server, free_port};

use crate::support::*;

type R<T> = Result<T, LockError>;

#[redis_lock(key = "job", wait = "none", via = locks, on_busy = Ok("busy"))]
async fn answers_busy(locks: &Locks) -> R<&'static str> {
    Ok("ran")
}

#[redis_lock(key = "job", wait = "none", via = locks, on_busy = Ok("busy"))]
fn answers_busy_sync(locks: &Locks) -> R<&'static str> {
    Ok("ran")
}

/// The value for a busy lock is not returned for an outage, a lock of another kind, or a shutdown.
#[tokio::test]
async fn a_value_for_busy_is_for_no_other_failure() {
    let nowhere = open(&format!("redis://127.0.0.1:{}", free_port()));
    assert_backend(answers_busy(&nowhere).await, "");
    let outcome = {
        let nowhere = nowhere.clone();
        tokio::task::spawn_blocking(move || answers_busy_sync(&nowhere)).await.unwrap()
    };
    assert_backend(outcome, "");
    nowhere.shutdown().await;
    for outcome in [answers_busy(&nowhere).await, answers_busy_sync(&nowhere)] {
        assert!(matches!(outcome, Err(LockError::Shutdown)), "{outcome:?}");
    }

    let server = Server::start();
    let locks = connect(&server.url()).await;
    server.run::<()>("SET lock:job data");
    assert_backend(answers_busy(&locks).await, "ttl");
    server.run::<()>("DEL lock:job");
    let theirs = job(&open(&server.url())).acquire().await.unwrap();
    assert_eq!(answers_busy(&locks).await.unwrap(), "busy");
    theirs.release().await.unwrap();
    assert_eq!(answers_busy(&locks).await.unwrap(), "ran");
    server.assert_clean();
}

/// Its renewals are seldom, so that only the release finds out that the lock is gone.
#[redis_lock(key = "job", ttl = "30s", via = locks)]
async fn robbed(locks: &Locks, server: &Server, value: &str) -> R<u32> {
    server.run::<()>(&format!("SET lock:job {value} PX 30000"));
    Ok(1)
}

#[redis_lock(key = "job", ttl = "30s", via = locks)]
fn robbed_sync(locks: &Locks, server: &Server, value: &str) -> R<u32> {
    server.run::<()>(&format!("SET lock:job {value} PX 30000"));
    Ok(1)
}

async fn a_loss_that_the_release_finds_replaces_the_value() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let outcome = robbed(&locks, &server, "thief").await;
    assert!(matches!(&outcome, Err(LockError::Lost { .. })), "{outcome:?}");
    server.run::<()>("DEL lock:job");
    let outcome = tokio::task::block_in_place(|| robbed_sync(&locks, &server, "thief"));
    assert!(matches!(&outcome, Err(LockError::Lost { .. })), "{outcome:?}");
    assert_eq!(server.get(WIRE).as_deref(), Some("thief"), "the other's is left alone");
    server.run::<()>("DEL lock:job");
    server.assert_clean();
}

both_paths!(on 2 threads: a_loss_that_the_release_finds_replaces_the_value);

#[redis_lock(key = "job", ttl = "30s", via = locks)]
async fn waits(locks: &Locks) -> R<Instant> {
    Ok(Instant::now())
}

#[redis_lock(key = "job", ttl = "30s", via = locks, release = wait)]
async fn waits_in_words(locks: &Locks) -> R<Instant> {
    Ok(Instant::now())
}

#[redis_lock(key = "job", ttl = "30s", via = locks, release = background)]
async fn does_not_wait(locks: &Locks) -> R<Instant> {
    Ok(Instant::now())
}

/// The release is answered some time after the body's end: one function waits for that, the other
/// doesn't.
#[tokio::test]
async fn a_function_returns_after_its_release_unless_that_is_in_the_background() {
    const SLOW: Duration = ms(150);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    proxy.delay_up(SLOW);
    let mut soonest = PATIENCE;
    for _ in 0..3 {
        let ended = waits(&locks).await.unwrap();
        assert!(ended.elapsed() >= SLOW, "{:?}", ended.elapsed());
        assert!(!server.exists(WIRE), "it was released before");
        let ended = waits_in_words(&locks).await.unwrap();
        assert!(ended.elapsed() >= SLOW, "{:?}", ended.elapsed());
        assert!(!server.exists(WIRE), "it was released before");
        let ended = does_not_wait(&locks).await.unwrap();
        soonest = soonest.min(ended.elapsed());
        testbed::eventually(PATIENCE, "it is released", || !server.exists(WIRE));
    }
    // A busy machine may delay one of them; a call that waits is late each time.
    assert!(soonest < SLOW, "{soonest:?}");
    server.assert_clean();
}
