//! A mutex around a scope that waits, and repairs a lock without a ttl: `cargo run --example
//! scoped_mutex`.
//!
//! Old clients that sent `SETNX`, then `EXPIRE`, and died in between left keys that block for ever.
//! `repair_orphan` gives such a value a ttl, once, logs that, and waits for its end.

use std::time::Duration;

use redis_locks::{LockError, Locks};

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    println!("the balance is {}", demo(&locks)?);
    locks.blocking_shutdown();
    Ok(())
}

/// What several threads have added up, each under the lock.
pub(crate) fn demo(locks: &Locks) -> Result<u32, LockError> {
    let balance = std::sync::atomic::AtomicU32::new(0);
    let deposit = |amount| {
        let request = locks.mutex("example:balance");
        request
            .wait(Duration::from_secs(20))
            .repair_orphan(Duration::from_millis(300))
            .blocking_run(|_guard| {
                // Read and write in two steps, as a database client would.
                let before = balance.load(std::sync::atomic::Ordering::SeqCst);
                std::thread::yield_now();
                balance.store(before + amount, std::sync::atomic::Ordering::SeqCst);
            })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=5).map(|amount| scope.spawn(move || deposit(amount))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(balance.into_inner())
}
