//! `drain`: what holds a lock may finish, and nothing else begins.

use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, LossReason, redis_lock};
use testbed::PATIENCE;
use tokio::time::timeout;

use crate::arena::{Arena, ms};

#[test]
fn guards_stay_valid_until_they_are_gone_and_nothing_else_begins() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in Arena::each() {
        let locks = arena.one.clone();
        runtime.block_on(async {
            let guard = locks.mutex("held").ttl(ms(600)).acquire().await.unwrap();
            let other = locks.mutex("other").acquire().await.unwrap();
            let waiter = tokio::spawn(locks.mutex("other").acquire());
            let begun = tokio::spawn({
                let locks = locks.clone();
                async move { locks.draining().await }
            });
            let drain = tokio::spawn({
                let locks = locks.clone();
                async move { locks.drain(Duration::from_secs(60)).await }
            });
            timeout(PATIENCE, begun).await.unwrap().unwrap();
            let refused = timeout(PATIENCE, waiter).await.unwrap().unwrap();
            assert!(matches!(refused, Err(LockError::Shutdown)), "{}: {refused:?}", arena.name);
            let refused = locks.mutex("new").acquire().await;
            assert!(matches!(refused, Err(LockError::Shutdown)), "{}: {refused:?}", arena.name);
            tokio::time::sleep(ms(1_000)).await;
            guard.verify().await.unwrap();
            guard.extend(ms(700)).await.unwrap();
            assert!(locks.status("held").await.unwrap().is_held(), "{}", arena.name);
            other.release().await.unwrap();
            assert!(!drain.is_finished(), "{}: a guard is left", arena.name);
            guard.release().await.unwrap();
            let drained = timeout(PATIENCE, drain).await.unwrap().unwrap();
            assert_eq!(drained.cut_off, 0, "{}", arena.name);
            timeout(PATIENCE, locks.draining()).await.unwrap();
            assert_eq!(locks.status("held").await.unwrap_err(), LockError::Shutdown);
            arena.other.shutdown().await;
        });
        arena.assert_clean();
    }
}

#[tokio::test]
async fn guards_that_are_left_at_the_limit_are_cut_off_also_when_nothing_waits_for_the_drain() {
    let locks = Locks::in_memory();
    let guard = locks.mutex("k").acquire().await.unwrap();
    let begun = Instant::now();
    drop(timeout(ms(1), locks.drain(ms(300))).await);
    assert_eq!(timeout(PATIENCE, guard.lost()).await, Ok(LossReason::Shutdown));
    assert!(begun.elapsed() >= ms(300));
    let drained = timeout(PATIENCE, locks.drain(PATIENCE)).await.unwrap();
    assert_eq!(drained.cut_off, 1, "a second call says what the first one did");
}

#[tokio::test]
async fn a_manager_that_was_never_used_is_drained_at_once() {
    let locks = Locks::in_memory();
    assert_eq!(timeout(PATIENCE, locks.drain(PATIENCE)).await.unwrap().cut_off, 0);
    assert_eq!(locks.mutex("k").acquire().await.unwrap_err(), LockError::Shutdown);
}

#[tokio::test]
async fn a_shutdown_wakes_those_who_wait_for_a_drain() {
    let locks = Locks::in_memory();
    let begun = tokio::spawn({
        let locks = locks.clone();
        async move { locks.draining().await }
    });
    tokio::task::yield_now().await;
    locks.shutdown().await;
    timeout(PATIENCE, begun).await.unwrap().unwrap();
}

#[redis_lock(key = "job", via = locks, reentrant)]
async fn joins(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn bodies_that_run_may_join_their_own_lock_and_take_no_new_one() {
    let locks = Locks::in_memory();
    let mut drain = None;
    let ran = locks.mutex("job").run(async |_| {
        drain = Some(tokio::spawn({
            let locks = locks.clone();
            async move { locks.drain(PATIENCE).await }
        }));
        locks.draining().await;
        joins(&locks).await.unwrap();
        assert_eq!(locks.mutex("new").acquire().await.unwrap_err(), LockError::Shutdown);
    });
    timeout(PATIENCE, ran).await.unwrap().unwrap();
    let drained = timeout(PATIENCE, drain.unwrap()).await.unwrap();
    assert_eq!(drained.unwrap().cut_off, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_says_what_was_cut_off_also_when_a_shutdown_overtakes_it() {
    for _ in 0..50 {
        let locks = Locks::in_memory();
        let _held = locks.mutex("k").acquire().await.unwrap();
        let drain = tokio::spawn({
            let locks = locks.clone();
            async move { locks.drain(PATIENCE).await }
        });
        locks.draining().await;
        locks.shutdown().await;
        assert_eq!(timeout(PATIENCE, drain).await.unwrap().unwrap().cut_off, 1);
    }
}
