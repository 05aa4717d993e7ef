//! A job that each machine starts at about the same time, and one runs:
//! `REDIS_URL=redis://localhost cargo run --bin nightly`, in three shells, within ten seconds.
//!
//! `min_hold` keeps the lock although the job was quick, so that a machine whose clock is a little
//! late does not run it once more.

use redis_locks::{LockError, Locks, redis_lock};

/// What became of the job on this machine.
#[derive(Debug)]
enum Outcome {
    Ran,
    Skipped,
}

#[redis_lock(
    key = "nightly",
    wait = "none",
    min_hold = "10s",
    max_hold = "1h",
    on_busy = Ok(Outcome::Skipped)
)]
async fn nightly() -> Result<Outcome, LockError> {
    Ok(Outcome::Ran)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    println!("{:?}", nightly().await?);
    Locks::global()?.shutdown().await;
    Ok(())
}
