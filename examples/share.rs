//! Waiting calls get the result of the running call: `cargo run --example share --features serde`.
//!
//! A hundred requests want the same exchange rate at the same time. One of them asks for it. The
//! others wait, on all machines, and get its answer. A later request asks again: this is not a
//! cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};
use tokio::task::JoinSet;

/// Cents for a euro. `asked` counts how often the slow service was asked.
#[redis_lock(key = "example:rate:{currency}", share)]
async fn rate(currency: &'static str, asked: Arc<AtomicU32>) -> Result<u32, LockError> {
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(108 + asked.fetch_add(1, Ordering::SeqCst))
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    let (rates, asked) = demo(&locks).await?;
    println!("{} calls got {rates:?}, and the service was asked {asked} times", rates.len());
    locks.shutdown().await;
    Ok(())
}

/// Makes a hundred calls at once. Returns what each got, and how often the service was asked.
pub(crate) async fn demo(locks: &Locks) -> Result<(Vec<u32>, u32), LockError> {
    let (asked, mut calls) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    for _ in 0..100 {
        calls.spawn(locks.scope(rate("usd", Arc::clone(&asked))));
    }
    let mut rates = Vec::new();
    while let Some(call) = calls.join_next().await {
        match call {
            Ok(outcome) => rates.push(outcome?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    Ok((rates, asked.load(Ordering::SeqCst)))
}
