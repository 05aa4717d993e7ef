//! A store that refuses a stale writer: `cargo run --example fencing`.
//!
//! No lock can stop a process that freezes while it holds the lock, and wakes up after it has lost
//! it. The store can, if it keeps the largest number that it has seen. In SQL:
//!
//! ```sql
//! ALTER TABLE account ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
//!
//! UPDATE account SET balance = $2, fence = $1
//!  WHERE id = $3 AND fence < $1;   -- 0 rows: a holder with a higher number was here
//! ```
//!
//! Use `fence <= $1` if one holder writes a row several times.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis_locks::{LockError, Locks};

/// A table with a column for the number, as above.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<HashMap<&'static str, (u64, i64)>>);

impl Accounts {
    /// Returns how many rows were updated.
    pub(crate) fn update(&self, id: &'static str, balance: i64, fence: u64) -> usize {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, stored) = rows.entry(id).or_default();
        if *last >= fence {
            return 0;
        }
        (*last, *stored) = (fence, balance);
        1
    }

    pub(crate) fn balance(&self, id: &'static str) -> i64 {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(id).map_or(0, |(_, balance)| *balance)
    }
}

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    let (fresh, stale, balance) = demo(&locks)?;
    println!(
        "rows updated by the present holder: {fresh}, by the stale one: {stale}; balance {balance}"
    );
    locks.blocking_shutdown();
    Ok(())
}

/// Returns the rows that the present holder updated, those that the stale one updated, and the
/// balance after both.
pub(crate) fn demo(locks: &Locks) -> Result<(usize, usize, i64), LockError> {
    let accounts = Accounts::default();
    let request = || locks.mutex("example:account:7").fenced();
    let number = |guard: &redis_locks::Guard| guard.fence().unwrap_or_default();

    // This one stops for longer than its lease, say in a pause of its virtual machine.
    let stale = request().ttl(Duration::from_millis(300)).renew(false).blocking_acquire()?;
    let fresh = request().wait(Duration::from_secs(20)).blocking_acquire()?;
    let written = accounts.update("7", 120, number(&fresh));
    // It wakes up, and still believes in what it has read before.
    let refused = accounts.update("7", 80, number(&stale));
    fresh.blocking_release()?;
    Ok((written, refused, accounts.balance("7")))
}
