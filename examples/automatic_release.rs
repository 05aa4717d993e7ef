//! A lock with automatic release in seconds or milliseconds: `cargo run --example automatic_release`.
//!
//! By default a lease is renewed while the guard lives, so that it protects work of any length.
//! With `renew(false)` the lock ends after its ttl, whatever its holder does.

use std::time::Duration;

use redis_locks::{LockError, LockState, Locks};

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    for (ttl, state) in demo(&locks)? {
        println!("after its {ttl:?} the lock is {state:?}, and the next one has had it");
    }
    locks.blocking_shutdown();
    Ok(())
}

/// The state of each guard when the next one had the lock.
pub(crate) fn demo(locks: &Locks) -> Result<Vec<(Duration, LockState)>, LockError> {
    let mut ended = Vec::new();
    for ttl in [Duration::from_secs(1), Duration::from_millis(250)] {
        let request = || locks.mutex("example:cache").ttl(ttl);
        let guard = request().renew(false).blocking_acquire()?;
        // The guard lives on, but the lock does not: the next one waits no longer than its ttl.
        let next = request().wait(ttl * 10).blocking_acquire()?;
        ended.push((ttl, guard.state()));
        next.blocking_release()?;
    }
    Ok(ended)
}
