//! Many locks that are held at the same time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use redis_locks::{Guard, Locks};
use testbed::Server;
use tokio::task::JoinSet;

use super::figures::processor_time;

/// How many are acquired at once: few, so that what is under way does not count as memory of what
/// is held.
pub const AT_ONCE: usize = 64;

/// Acquires `count` mutexes whose keys begin with `name`.
pub async fn take(locks: &Locks, name: &str, count: usize) -> Result<Vec<Guard>> {
    let (mut guards, mut taking) = (Vec::with_capacity(count), JoinSet::new());
    for number in 0..count {
        if taking.len() == AT_ONCE
            && let Some(taken) = taking.join_next().await
        {
            guards.push(taken??);
        }
        taking.spawn(locks.mutex(format!("{name}:{number}")).acquire());
    }
    while let Some(taken) = taking.join_next().await {
        guards.push(taken??);
    }
    Ok(guards)
}

/// The cost of holding locks for a while.
pub struct Kept {
    pub lost: usize,
    /// How much of a core this process has taken.
    pub core: f64,
}

/// Holds locks for so long. They are all that the server has.
pub fn keep(server: &Server, guards: &[Guard], time: Duration) -> Result<Kept> {
    let (start, used) = (Instant::now(), processor_time()?);
    sleep(time);
    let core = (processor_time()? - used) / start.elapsed().as_secs_f64();
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    let keys: usize = server.run("DBSIZE");
    Ok(Kept { lost: guards.len().saturating_sub(held.min(keys)), core })
}
