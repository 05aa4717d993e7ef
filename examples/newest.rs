//! The newest call wins: `cargo run --example newest`.
//!
//! A preview is drawn while its author types. Each key press starts a call that ends the older
//! ones, on all machines, because their previews are out of date. The body of an older call ends
//! before a newer one begins.

use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};
use tokio::task::JoinSet;

/// The preview; `None` if a newer call has come.
#[redis_lock(key = "example:preview:{document}", newest, on_superseded = Ok(None))]
async fn preview(document: u64, text: String) -> Result<Option<String>, LockError> {
    println!("drawing {text:?}");
    // Here an async body is dropped when a newer call has come.
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(Some(format!("<p>{text}</p>")))
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    println!("drawn to the end: {:?}", demo(&locks).await?);
    locks.shutdown().await;
    Ok(())
}

/// Makes five calls, faster than a preview can be drawn. Returns the previews that were completed.
pub(crate) async fn demo(locks: &Locks) -> Result<Vec<String>, LockError> {
    let mut calls = JoinSet::new();
    for length in 1..="hello".len() {
        calls.spawn(locks.scope(preview(7, "hello"[..length].into())));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut drawn = Vec::new();
    while let Some(call) = calls.join_next().await {
        match call {
            Ok(outcome) => drawn.extend(outcome?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    Ok(drawn)
}
