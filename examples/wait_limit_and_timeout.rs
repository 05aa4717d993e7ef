//! A limit on the wait, a lease that is not renewed, and a release by the owner only: `cargo run
//! --example wait_limit_and_timeout`.

use std::time::Duration;

use redis_locks::{LockError, Locks};

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    println!("{}", demo(&locks)?.join("\n"));
    locks.blocking_shutdown();
    Ok(())
}

/// Says what happened.
pub(crate) fn demo(locks: &Locks) -> Result<Vec<&'static str>, LockError> {
    const LOCK_TIMEOUT: Duration = Duration::from_millis(600);
    let mut log = Vec::new();
    let request =
        |wait: Duration| locks.mutex("example:invoice").ttl(LOCK_TIMEOUT).renew(false).wait(wait);
    let slow = request(Duration::from_secs(5)).blocking_acquire()?;
    log.push("the first has it");
    match request(Duration::from_millis(200)).blocking_acquire() {
        Err(error) if error.is_busy() => log.push("the second waited as long as it was willing to"),
        Err(error) => return Err(error),
        Ok(_) => log.push("two at once"),
    }
    // The third is willing to wait for longer than the lock can last.
    let third = request(Duration::from_secs(20)).blocking_acquire()?;
    log.push("the third got it when the first one's time was up");
    match slow.blocking_release() {
        Err(error) if error.is_lost() => log.push("the first can't release what is not its own"),
        Err(error) => return Err(error),
        Ok(()) => log.push("released another's"),
    }
    third.blocking_verify()?;
    log.push("the third still has it");
    third.blocking_release()?;
    Ok(log)
}
