//! The pair `acquire(key, timeout, uid)` and `release(key, uid)` as free functions:
//! `cargo run --example acquire_release_pair`.
//!
//! For code that keeps no guards: who asks is named by a string of its own, and may release from
//! anywhere in the process. The guards, and with them renewal and the safe release, are kept here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis_locks::{Guard, LockError, Locks};

/// The guards of those who hold something, by key and owner.
static HELD: Mutex<Option<HashMap<(String, String), Guard>>> = Mutex::new(None);

/// Takes the lock for `uid`, for at most `timeout`; `false` when somebody else has it, or `uid`
/// itself.
pub(crate) fn acquire(key: &str, timeout: Duration, uid: &str) -> Result<bool, LockError> {
    let request = Locks::global()?.mutex(key).ttl(timeout).renew(false);
    let Some(guard) = request.blocking_try_acquire()? else { return Ok(false) };
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    // What `uid` had before under this key has ended, or the lock would not have been free.
    held.get_or_insert_default().insert((key.to_owned(), uid.to_owned()), guard);
    Ok(true)
}

/// Gives the lock back; `false` when `uid` does not have it, or no more.
pub(crate) fn release(key: &str, uid: &str) -> Result<bool, LockError> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = held.get_or_insert_default().remove(&(key.to_owned(), uid.to_owned()));
    drop(held);
    match guard.map(Guard::blocking_release) {
        None => Ok(false),
        Some(Ok(())) => Ok(true),
        Some(Err(error)) if error.is_lost() => Ok(false),
        Some(Err(error)) => Err(error),
    }
}

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    locks.install()?;
    println!("{:?}", demo()?);
    locks.blocking_shutdown();
    Ok(())
}

/// The outcome of each call.
pub(crate) fn demo() -> Result<Vec<bool>, LockError> {
    const KEY: &str = "example:seat:12A";
    Ok(vec![
        acquire(KEY, Duration::from_millis(400), "ada")?,
        acquire(KEY, Duration::from_secs(1), "grace")?,
        release(KEY, "grace")?,
        release(KEY, "ada")?,
        release(KEY, "ada")?,
        acquire(KEY, Duration::from_secs(1), "grace")?,
        release(KEY, "grace")?,
    ])
}
