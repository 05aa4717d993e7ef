use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis_locks::redis_lock;
use testbed::SharedCounter;

/// One worker process of the demo: `demo-worker locked|unlocked <file> <updates>`.
pub(crate) fn work(arguments: &[String]) -> Result<()> {
    let [mode, path, updates] = arguments else { bail!("demo-worker is started by the demo") };
    let counter = SharedCounter::open(Path::new(path));
    let add_one = if mode == "locked" { add_one_alone } else { add_one };
    for _ in 0..updates.parse().context("the number of updates")? {
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
#[redis_lock(key = "demo:counter", ttl = "5s")]
fn add_one_alone(counter: &SharedCounter) -> Result<()> {
    add_one(counter)
}
