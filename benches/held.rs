//! Ten thousand locks with a lease of 6 s, held for more than two leases: how many are lost, how much
//! of a core renewing them takes, and how much memory each of them.
//!
//! `cargo bench --bench held` starts a server of its own. Memory and processor time are those of
//! this process, in which nothing else happens.

mod support;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use redis_locks::Locks;
use testbed::Server;
use tokio::runtime::Builder;

use support::figures::tell;
use support::held::{AT_ONCE, keep, take};

const LOCKS: usize = 10_000;

const TTL: Duration = Duration::from_secs(6);

const HELD: Duration = Duration::from_secs(15);

/// The goals: none lost, at most this much of a core, at most so many bytes of memory for each.
const GOAL_CORE: f64 = 0.08;
const GOAL_MEMORY: f64 = 1_500.0;

fn main() -> Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = Server::start();
    let locks = runtime.block_on(Locks::builder().url(server.url()).ttl(TTL).connect())?;
    // What is allocated on first use is not memory of the locks.
    runtime.block_on(async {
        for guard in take(&locks, "warm-up", AT_ONCE * 8).await? {
            guard.release().await?;
        }
        anyhow::Ok(())
    })?;

    let before = resident()?;
    let guards = runtime.block_on(take(&locks, "held", LOCKS))?;
    let memory = (resident()? - before) / LOCKS as f64;

    let kept = keep(&server, &guards, HELD)?;

    let (major, minor, patch) = server.binary().version();
    println!(
        "{LOCKS} locks held for {HELD:?} on {:?} {major}.{minor}.{patch}",
        server.binary().flavor()
    );
    tell("lost", kept.lost as f64, 0.0, "");
    tell("of a core", kept.core * 100.0, GOAL_CORE * 100.0, " %");
    tell("memory per lock", memory, GOAL_MEMORY, " bytes");
    Ok(())
}

/// The memory that this process has from the system, in bytes.
fn resident() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/status").context("this bench needs /proc")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024.0)
}
