//! Tasks that are polled inside of another task's body do not count as that body.

use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};
use tokio::runtime;
use tokio::task::LocalSet;

const WAIT: Duration = Duration::from_millis(150);

#[redis_lock(key = "outer", via = locks, wait = WAIT)]
async fn inner(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

/// Calls the inner function directly, and from a task.
async fn direct_and_spawned(locks: &Locks) -> [Result<(), LockError>; 2] {
    let direct = inner(locks).await;
    let locks = locks.clone();
    let spawned = tokio::task::spawn_local(async move { inner(&locks).await }).await.unwrap();
    [direct, spawned]
}

#[track_caller]
fn assert_refused_and_waited([direct, spawned]: [Result<(), LockError>; 2]) {
    assert!(matches!(direct, Err(LockError::Reentrant { other_task: false, .. })), "{direct:?}");
    let Err(LockError::Busy { waited, .. }) = spawned else { panic!("{spawned:?}") };
    assert!(waited >= WAIT, "{waited:?}");
}

#[redis_lock(key = "outer", via = locks)]
fn blocking_body(locks: &Locks, runtime: &runtime::Runtime) -> Result<(), LockError> {
    assert_refused_and_waited(LocalSet::new().block_on(runtime, direct_and_spawned(locks)));
    let spawned = runtime.block_on(async {
        let locks = locks.clone();
        tokio::spawn(async move { inner(&locks).await }).await.unwrap()
    });
    assert!(spawned.unwrap_err().is_busy());
    Ok(())
}

#[test]
fn m08_a_task_of_a_runtime_inside_a_blocking_body_waits() {
    let locks = Locks::in_memory();
    for mut runtime in
        [runtime::Builder::new_current_thread(), runtime::Builder::new_multi_thread()]
    {
        blocking_body(&locks, &runtime.enable_all().build().unwrap()).unwrap();
    }
}

#[redis_lock(key = "outer", via = locks)]
async fn async_body(locks: &Locks) -> Result<(), LockError> {
    assert_refused_and_waited(LocalSet::new().run_until(direct_and_spawned(locks)).await);
    Ok(())
}

#[tokio::test]
async fn m08_a_task_of_a_local_set_inside_an_async_body_waits() {
    async_body(&Locks::in_memory()).await.unwrap();
}

thread_local!(static LOCKS: Locks = Locks::in_memory());

#[tokio::test]
#[redis_lock(key = "outer", via = LOCKS.with(Locks::clone))]
async fn m08_a_task_spawned_by_a_test_that_is_locked_waits() -> Result<(), LockError> {
    let locks = LOCKS.with(Locks::clone);
    assert_refused_and_waited(LocalSet::new().run_until(direct_and_spawned(&locks)).await);
    let spawned = tokio::spawn(async move { inner(&locks).await }).await.unwrap();
    assert!(spawned.unwrap_err().is_busy(), "it waits");
    Ok(())
}

#[tokio::test]
async fn the_spawned_one_gets_it_when_the_body_has_ended() {
    let locks = Locks::in_memory();
    let mut waits = None;
    let body = locks.mutex("outer").run(async |_| {
        let wants = locks.mutex("outer").wait(Duration::from_secs(10));
        waits = Some(tokio::task::spawn_local(async move { wants.acquire().await.map(drop) }));
        tokio::task::yield_now().await;
    });
    let tasks = LocalSet::new();
    tasks.run_until(body).await.unwrap();
    tasks.run_until(waits.unwrap()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_branch_of_a_join_inside_the_body_is_the_body() {
    #[redis_lock(key = "outer", via = locks)]
    async fn body(locks: &Locks) -> Result<(), LockError> {
        let (one, other) = tokio::join!(inner(locks), inner(locks));
        for outcome in [one, other] {
            assert!(matches!(outcome, Err(LockError::Reentrant { .. })), "{outcome:?}");
        }
        Ok(())
    }
    body(&Locks::in_memory()).await.unwrap();
}

/// A guard may be released by whatever code has it, so a second call waits.
#[tokio::test]
async fn a_guard_that_is_elsewhere_by_now_is_waited_for() {
    let locks = Locks::in_memory();
    let patient = || locks.mutex("outer").wait(Duration::from_secs(10));
    let guard = patient().acquire().await.unwrap();
    let releases = async {
        tokio::task::yield_now().await;
        drop(guard);
    };
    let (beside, ()) = tokio::join!(patient().acquire(), releases);
    let (give, given) = tokio::sync::oneshot::channel();
    give.send(beside.unwrap()).unwrap();
    tokio::spawn(async move { given.await.unwrap().release().await.unwrap() });
    let guard = patient().acquire().await.unwrap();
    std::thread::spawn(move || drop(guard));
    let guard = patient().run(async |_| 1).await;
    assert_eq!(guard, Ok(1));
}

#[test]
fn a_guard_that_a_thread_has_given_away_is_waited_for() {
    let locks = Locks::in_memory();
    let guard = locks.mutex("outer").blocking_acquire().unwrap();
    let (give, given) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(given.recv()));
    give.send(guard).unwrap();
    let guard = locks.mutex("outer").wait(Duration::from_secs(10)).blocking_acquire();
    guard.unwrap().blocking_release().unwrap();
}
