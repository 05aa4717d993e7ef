//! `once` and `on_done`: what a function has done is not done again in the period.

use std::cell::Cell;
use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};

use crate::support::{R, locks};

thread_local!(static RUNS: Cell<u32> = const { Cell::new(0) });

fn runs() -> u32 {
    RUNS.set(RUNS.get() + 1);
    RUNS.get()
}

async fn is_done(locks: &Locks, key: &str) -> bool {
    locks.status(key).await.unwrap().done.is_some()
}

#[redis_lock(key = "once:{n}", once = "24h")]
async fn job(n: u32, succeeds: bool) -> R<u32> {
    let _ = runs();
    if succeeds { Ok(n) } else { Err(LockError::Shutdown) }
}

#[tokio::test]
async fn only_an_ok_is_remembered() -> R<()> {
    let _installed = locks();
    for _ in 0..2 {
        assert_eq!(job(1, false).await, Err(LockError::Shutdown));
    }
    let forgotten = tokio::time::timeout(Duration::ZERO, job(1, true)).await;
    let done = is_done(locks(), "once:1").await;
    assert!(forgotten.is_err() || done, "{forgotten:?}");
    let _ = locks().force_release("once:1", "again").await?;
    let before = runs();
    assert_eq!(job(1, true).await, Ok(1));
    let again = job(1, true).await.unwrap_err();
    let LockError::Done { key, by, .. } = &again else { panic!("{again:?}") };
    assert_eq!(key, "once:1");
    assert!(by.as_ref().is_some_and(|by| by.ends_with("once::job")), "{by:?}");
    assert!(!again.is_busy());
    assert_eq!(runs(), before + 2, "the second did not run");
    Ok(())
}

#[redis_lock(
    key = "once:{n}",
    once = period,
    wait = "none",
    on_busy = Ok("busy".into()),
    on_done = Ok(format!("done {n}")),
)]
async fn answers(n: u32, period: Duration) -> R<String> {
    Ok("run".into())
}

#[redis_lock(key = "once:{n}", once = "1h", on_done = Ok("done"), on_error = |error| Err(error.to_string()))]
async fn answers_done(n: u32) -> Result<&'static str, String> {
    Ok("run")
}

#[redis_lock(key = "once:{n}", once = "1h", on_done = "done", on_error = |_| "failed")]
fn plain(n: u32) -> &'static str {
    "run"
}

#[redis_lock(key = "once:{n}", once = "1h", on_busy = Ok(1), on_done = Ok(2), wait = "none")]
fn blocking(n: u32, value: R<u32>) -> R<u32> {
    value
}

#[tokio::test]
async fn on_done_is_what_is_returned_instead() -> R<()> {
    let hour = Duration::from_secs(3_600);
    let held = locks().mutex("once:2").acquire().await?;
    assert_eq!(answers(2, hour).await?, "busy");
    held.release().await?;
    assert_eq!(answers(2, hour).await?, "run");
    assert_eq!(answers(2, hour).await?, "done 2");
    assert_eq!(answers_done(3).await.unwrap(), "run");
    assert_eq!(answers_done(3).await.unwrap(), "done");
    Ok(())
}

#[test]
fn a_function_that_blocks_does_the_same() -> R<()> {
    let _installed = locks();
    assert_eq!((plain(4), plain(4)), ("run", "done"), "what is no `Result` succeeds by returning");
    assert_eq!(blocking(5, Err(LockError::NotConfigured)), Err(LockError::NotConfigured));
    let held = locks().mutex("once:5").blocking_acquire()?;
    assert_eq!(blocking(5, Ok(0))?, 1);
    held.blocking_release()?;
    assert_eq!((blocking(5, Ok(0))?, blocking(5, Ok(0))?), (0, 2));
    let panicked = std::panic::catch_unwind(|| panicking(6));
    assert!(panicked.is_err());
    assert_eq!(blocking(6, Ok(0))?, 0);
    Ok(())
}

#[redis_lock(key = "once:{n}", once = "1h")]
fn panicking(n: u32) -> R<()> {
    panic!("{n} fails")
}

#[redis_lock(key = "once:{n}", once = "1h", on_lost = finish, release = background)]
async fn finishes(n: u32, locks: &Locks) -> R<u32> {
    locks.force_release(&format!("once:{n}"), "it hangs").await?;
    Ok(n)
}

#[redis_lock(key = "once:{n}", once = "1h", release = background)]
async fn in_background(n: u32) -> R<u32> {
    Ok(n)
}

#[tokio::test]
async fn a_lock_that_was_lost_remembers_nothing() -> R<()> {
    assert_eq!(finishes(7, locks()).await?, 7);
    assert!(!is_done(locks(), "once:7").await);
    assert_eq!(in_background(7).await?, 7);
    assert!(is_done(locks(), "once:7").await, "a success is waited for");
    Ok(())
}

#[redis_lock(key = "once:{n}", once = "50ms")]
async fn slow(n: u32, limit: Duration) -> R<u32> {
    tokio::time::sleep(limit).await;
    Ok(n)
}

#[tokio::test]
async fn a_body_that_took_longer_than_the_period_just_gives_the_lock_back() -> R<()> {
    let _installed = locks();
    for _ in 0..2 {
        assert_eq!(slow(8, Duration::from_millis(60)).await?, 8);
    }
    Ok(())
}
