//! The pair `acquire(key, timeout, uid)` and `release(key, uid)`:
//! `cargo run --example acquire_release_pair`.
//!
//! For code that keeps no guards. A string from the caller names the holder, and any process that
//! knows the string may release. The holder's label contains the string, and a process that
//! releases adopts the hold by its token. The process keeps no state.

use std::time::Duration;

use redis_locks::{LockError, Locks, LocksBuilder, Scripting};

/// What precedes the caller's string in the label of a holder.
const PREFIX: &str = "pair";

/// Locks that are released by name.
pub(crate) struct Pair {
    locks: Locks,
}

impl Pair {
    pub(crate) fn new(builder: LocksBuilder) -> Result<Self, LockError> {
        Ok(Self { locks: builder.label(PREFIX).open()? })
    }

    /// Takes the lock for `uid`, for at most `timeout`; `false` when it is held.
    pub(crate) fn acquire(
        &self,
        key: &str,
        timeout: Duration,
        uid: &str,
    ) -> Result<bool, LockError> {
        let request = self.locks.mutex(key).ttl(timeout).renew(false).label(uid);
        match request.blocking_try_acquire()? {
            // It is held until a process releases it by name, or its time is up.
            Some(guard) => {
                let _token = guard.detach();
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Releases the lock; `false` if another holder has it. If the lock is free, the answer is
    /// `true` with transactions, which find nothing to do, and `false` with scripts, which delete
    /// nothing.
    pub(crate) fn release(&self, key: &str, uid: &str) -> Result<bool, LockError> {
        let status = self.locks.blocking_status(key)?;
        let Some(holder) = status.holders.first() else { return Ok(!status.server.scripts) };
        if holder.label.as_deref() != Some(format!("{PREFIX} {uid}").as_str()) {
            return Ok(false);
        }
        // By its token: if the lock has passed on meanwhile, the next holder keeps it.
        match self.locks.mutex(key).blocking_adopt(holder.token.clone()) {
            Ok(guard) => guard.blocking_release().map(|()| true),
            Err(error) if error.is_lost() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn main() -> Result<(), LockError> {
    let url = std::env::var("REDIS_URL").map_err(|_| LockError::NotConfigured)?;
    for scripting in [Scripting::Never, Scripting::Auto] {
        let pair = || Pair::new(Locks::builder().url(&url).scripting(scripting));
        println!("{scripting:?}: {:?}", demo(&pair()?, &pair()?)?);
    }
    Ok(())
}

/// The outcome of each call; `other` is another process.
pub(crate) fn demo(one: &Pair, other: &Pair) -> Result<Vec<bool>, LockError> {
    const KEY: &str = "example:lock";
    Ok(vec![
        one.acquire(KEY, Duration::from_millis(10_086), "moto")?,
        other.acquire(KEY, Duration::from_millis(123), "nokia")?,
        one.release(KEY, "nokia")?,
        other.release(KEY, "moto")?,
        other.release(KEY, "moto")?,
    ])
}
