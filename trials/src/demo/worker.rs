use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use redis_locks::redis_lock;
use testbed::SharedCounter;

#[derive(Args)]
pub(crate) struct WorkerOptions {
    /// The file of the counter
    counter: PathBuf,
    updates: u64,
    #[arg(long)]
    locked: bool,
}

/// One worker process of the demo.
pub(crate) fn work(options: &WorkerOptions) -> Result<()> {
    let counter = SharedCounter::open(&options.counter);
    let add_one = if options.locked { add_one_alone } else { add_one };
    for _ in 0..options.updates {
        add_one(&counter)?;
        // Not through print!, which would hold lines back in a pipe.
        let mut out = std::io::stdout().lock();
        writeln!(out, "done")?;
        out.flush()?;
    }
    Ok(())
}

fn add_one(counter: &SharedCounter) -> Result<()> {
    counter.add_one(|| thread::sleep(Duration::from_micros(200)))?;
    Ok(())
}

/// The same, one at a time among all processes.
#[redis_lock(key = "demo:file", ttl = "5s")]
fn add_one_alone(counter: &SharedCounter) -> Result<()> {
    add_one(counter)
}
