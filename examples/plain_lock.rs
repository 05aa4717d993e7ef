//! A lock that never expires: `cargo run --example plain_lock`.
//!
//! It stays until its owner releases it. A holder that dies leaves it locked. Use it if a person
//! must check before the work is done again. That person ends it by `force_release`.

use redis_locks::{LockError, Locks};

fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    let log = demo(&locks)?;
    println!("{}", log.join("\n"));
    locks.blocking_shutdown();
    Ok(())
}

/// Says what happened.
pub(crate) fn demo(locks: &Locks) -> Result<Vec<&'static str>, LockError> {
    let mut log = Vec::new();
    let migration = || locks.mutex("example:migration").never_expires();
    let guard = migration().blocking_acquire()?;
    log.push("the migration runs");
    if migration().blocking_try_acquire()?.is_none() {
        log.push("a second one is kept out, for however long the first takes");
    }
    guard.blocking_release()?;
    log.push("released by its owner");

    // This one is never released: its process could have died here.
    std::mem::forget(migration().blocking_acquire()?);
    if locks.blocking_force_release("example:migration", "checked by hand: nothing was written")? {
        log.push("released by a person who gave a reason");
    }
    Ok(log)
}
