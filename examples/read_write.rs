//! A read-write lock with a limit on the reading time: `cargo run --example read_write`.
//!
//! A reader that hangs would block every writer. `max_hold` ends its hold. Its guard reports the
//! loss, and `run` stops its body.

use std::time::Duration;

use redis_locks::{LockError, Locks, LossReason};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = match Locks::from_env() {
        Err(LockError::NotConfigured) => Locks::in_memory(),
        locks => locks?,
    };
    println!("the reader was stopped: {}", demo(&locks).await?);
    locks.shutdown().await;
    Ok(())
}

/// Why the hanging reader lost its hold, once a writer has written.
pub(crate) async fn demo(locks: &Locks) -> Result<LossReason, LockError> {
    let read = || locks.read("example:catalog").max_hold(Duration::from_millis(700));
    // Two read at the same time; one of them hangs.
    let quick = read().acquire().await?;
    let hangs = read().acquire().await?;
    quick.release().await?;

    let writer = locks.write("example:catalog").wait(Duration::from_secs(20)).acquire().await?;
    let reason = hangs.lost().await;
    // From here on others may read what was written, and only this guard may write.
    let reader = writer.downgrade().await?;
    let other = read().acquire().await?;
    other.release().await?;
    reader.release().await?;
    Ok(reason)
}
