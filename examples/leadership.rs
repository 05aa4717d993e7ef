//! One leader among many processes, and a new one when it is gone: `cargo run --example
//! leadership`.
//!
//! Each process calls `lead`, and one at a time runs the body. The lock can be lost: the process
//! froze, the server lost its data, or an operator ended the hold. Then the body is dropped the
//! next time it yields, and the process queues again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis_locks::{LockError, Locks};
use tokio::sync::Notify;

/// The leaders, in order.
type Terms = Arc<Mutex<Vec<String>>>;

/// Leads until it is asked to stop; returns how many terms it led.
async fn candidate(
    locks: Locks,
    name: &'static str,
    terms: Terms,
    stop: Arc<Notify>,
) -> Result<u32, LockError> {
    let mut led = 0;
    let request = locks.mutex("example:dispatcher").ttl(Duration::from_secs(5)).label(name);
    request
        .lead(async |guard| {
            led += 1;
            terms.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
            println!("{name} leads, under {}", guard.key());
            // The work of the leader. It ends when the body ends, or when the lock is lost.
            stop.notified().await;
            led
        })
        .await
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    println!("in this order: {:?}", demo(&locks).await?);
    locks.shutdown().await;
    Ok(())
}

/// Runs two candidates, and deposes the first leader. Returns the leaders, in order.
pub(crate) async fn demo(locks: &Locks) -> Result<Vec<String>, LockError> {
    let (terms, stop) = (Terms::default(), Arc::new(Notify::new()));
    let run = |name| candidate(locks.clone(), name, Arc::clone(&terms), Arc::clone(&stop));
    let count = || terms.lock().unwrap_or_else(PoisonError::into_inner).len();
    let people = async {
        while count() == 0 || locks.status("example:dispatcher").await?.waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        locks.force_release("example:dispatcher", "to show what happens").await?;
        while count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Once for each: the leader ends, and then the other one leads.
        stop.notify_one();
        while count() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.notify_one();
        Ok::<_, LockError>(())
    };
    let (ada, grace, people) = tokio::join!(run("ada"), run("grace"), people);
    people?;
    assert_eq!(ada? + grace?, 3, "the terms of both");
    let terms = terms.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(terms.clone())
}
