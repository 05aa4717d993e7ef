//! Many locks that are held at the same time.

use anyhow::Result;
use redis_locks::{Guard, Locks};
use tokio::task::JoinSet;

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
