//! Servers that crash and come back, with and without their data.

use std::time::Instant;

use redis_locks::{LockState, Locks, LossReason};
use testbed::{Server, holds_for};

use crate::support::*;

/// A crash that loses the lock: the first holder is notified, and the next one's fence is larger.
async fn lost_at_a_crash(server: &Server, crash: impl FnOnce()) {
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let first = locks.mutex(KEY).ttl(ms(3000)).fenced().acquire().await.unwrap();
    crash();
    let second = job(&other).fenced().wait(PATIENCE).acquire().await.unwrap();
    let reason = loss(&first).await;
    match &reason {
        LossReason::Removed { .. } => {}
        LossReason::Overwritten { by, .. } => assert_eq!(by, second.token()),
        other => panic!("{other:?}"),
    }
    assert!(second.fence() > first.fence(), "{:?} after {:?}", second.fence(), first.fence());
    assert!(first.release().await.is_err_and(|error| error.is_lost()));
    second.verify().await.unwrap();
    second.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn f1_a_crash_without_persistence_is_a_loss() {
    let server = Server::start();
    lost_at_a_crash(&server, || server.restart()).await;
}

#[tokio::test]
async fn f1_a_loss_is_reported_even_when_nobody_else_wants_the_lock() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(3000)).acquire().await.unwrap();
    server.restart();
    assert!(matches!(loss(&guard).await, LossReason::Removed { .. }));
    assert!(!server.exists(WIRE), "a renewal must not bring it back");
    drop(guard);
    server.assert_clean();
}

#[tokio::test]
async fn f2_a_crash_with_an_append_only_file_is_survived() {
    let server = Server::builder().aof().start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(3000)).acquire().await.unwrap();
    for _ in 0..3 {
        server.restart();
        holds_for(ms(2000), "it is held", || guard.is_held());
        assert_eq!(server.get(WIRE), Some(guard.token().to_string()));
    }
    assert_eq!(guard.state(), LockState::Held);
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn f3_a_torn_file_is_a_loss() {
    let server = Server::builder().aof().start();
    lost_at_a_crash(&server, || {
        server.kill9();
        server.truncate_aof(20);
        server.restart();
        assert!(!server.exists(WIRE), "the lock was the write that was torn off");
    })
    .await;
}

#[tokio::test]
async fn a_downgrade_that_was_torn_off_is_asked_for_again() {
    let server = Server::builder().aof().start();
    let locks = connect(&server.url()).await;
    let reader = locks.write(KEY).acquire().await.unwrap().downgrade().await.unwrap();
    server.kill9();
    server.truncate_aof(20);
    server.restart();
    // Before that the lock of the writer would be renewed for as long as the reader lives.
    let other = connect(&server.url()).await;
    let second = other.read(KEY).wait(PATIENCE).acquire().await.unwrap();
    second.release().await.unwrap();
    reader.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn f2_locks_can_be_used_again_after_any_crash() {
    let server = Server::start();
    let locks = Locks::connect(server.url()).await.unwrap();
    for _ in 0..3 {
        let guard = job(&locks).wait(PATIENCE).acquire().await.unwrap();
        guard.release().await.unwrap();
        server.restart();
    }
    let guard = job(&locks).wait(PATIENCE).acquire().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn f9_a_server_that_is_restarted_again_and_again_costs_no_lock() {
    let server = Server::builder().aof().start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(5000)).acquire().await.unwrap();
    let start = Instant::now();
    while start.elapsed() < ms(15_000) {
        server.restart();
        // A lock that is acquired between two restarts is kept and released as well.
        let other = locks.mutex("other").wait(PATIENCE).acquire().await.unwrap();
        tokio::time::sleep(ms(1500)).await;
        assert!(guard.is_held(), "after {:?}", start.elapsed());
        other.release().await.unwrap();
    }
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn f10_reloads_and_rewrites_cost_no_lock_and_a_shutdown_without_saving_is_a_loss() {
    let server = Server::builder().aof().start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(1500)).fenced().acquire().await.unwrap();
    for round in 0..10 {
        // It refuses a second rewrite while one runs.
        let _ = server.query::<redis::Value>(&redis::cmd("BGREWRITEAOF"));
        server.run::<()>("DEBUG RELOAD");
        tokio::time::sleep(ms(250)).await;
        assert!(guard.is_held(), "in round {round}");
    }
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();

    let forgetful = Server::start();
    lost_at_a_crash(&forgetful, || {
        // It ends without an answer.
        let _ = forgetful.query::<redis::Value>(redis::cmd("SHUTDOWN").arg("NOSAVE"));
        forgetful.restart();
    })
    .await;
}
