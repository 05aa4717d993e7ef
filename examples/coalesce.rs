//! At most one call waits, and does the work for all calls that arrived since: `cargo run --example
//! coalesce`.
//!
//! Each change triggers an index of all documents. A call that finds another call waiting returns
//! at once: the waiting call reads the documents later, so it sees the change.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};
use tokio::task::JoinSet;

/// The documents to index, and how many each run has read.
#[derive(Default)]
pub(crate) struct Documents {
    changes: Mutex<Vec<u32>>,
    runs: Mutex<Vec<usize>>,
}

impl Documents {
    fn change(&self, number: u32) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    fn read(&self) -> usize {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn note(&self, read: usize) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(read);
    }
}

/// Whether this call ran its body.
#[redis_lock(key = "example:index", queue = 1, on_busy = Ok(false))]
async fn bring_up_to_date(documents: Arc<Documents>) -> Result<bool, LockError> {
    let read = documents.read();
    println!("indexing {read} changes");
    tokio::time::sleep(Duration::from_millis(100)).await;
    documents.note(read);
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    let (ran, last) = demo(&locks).await?;
    println!("20 changes, {ran} runs, the last of which has read {last} changes");
    locks.shutdown().await;
    Ok(())
}

/// Makes twenty changes, 10 ms apart, each followed by a call. Returns how many calls ran, and how
/// many changes the last run read.
pub(crate) async fn demo(locks: &Locks) -> Result<(usize, usize), LockError> {
    let documents = Arc::new(Documents::default());
    let mut calls = JoinSet::new();
    for number in 0..20 {
        documents.change(number);
        calls.spawn(locks.scope(bring_up_to_date(Arc::clone(&documents))));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while let Some(call) = calls.join_next().await {
        match call {
            Ok(outcome) => drop(outcome?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    let runs = documents.runs.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((runs.len(), runs.last().copied().unwrap_or_default()))
}
