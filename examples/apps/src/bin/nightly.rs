//! A job that each machine starts at about the same time, and that must succeed once a night:
//! `REDIS_URL=redis://localhost cargo run --bin nightly 2026-11-26`, in three shells.
//!
//! `once` remembers a success, so a machine that comes late does not run the job again. A failure is
//! not remembered, so the next machine tries.

use std::env;

use redis_locks::{LockError, Locks, redis_lock};

/// The outcome of the job on this machine.
#[derive(Debug)]
enum Outcome {
    Ran,
    DoneElsewhere,
}

#[redis_lock(
    key = "nightly:{date}",
    once = "24h",
    max_hold = "1h",
    on_done = Ok(Outcome::DoneElsewhere)
)]
async fn nightly(date: &str) -> Result<Outcome, LockError> {
    Ok(Outcome::Ran)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let date = env::args().nth(1).unwrap_or_else(|| "2026-11-26".into());
    println!("{:?}", nightly(&date).await?);
    Locks::global()?.shutdown().await;
    Ok(())
}
