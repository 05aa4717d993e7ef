//! Tasks that fight for one key, and who got how much of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::peer::Peer;

/// The result of the tasks.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// How often each of them had the lock.
    pub(crate) served: Vec<u64>,
    /// The longest that one of them waited, in seconds; or still waits at the end.
    pub(crate) worst: f64,
}

/// What one task tells while it runs. No channel and no timer: they would cost more than a
/// hand-over inside a process.
struct Contestant {
    served: AtomicU64,
    worst: AtomicU64,
    /// When it last began to wait, in nanoseconds since the start; 0 before it did.
    waits_since: AtomicU64,
}

/// Lets so many tasks fight for `key`.
pub(crate) fn fight<P: Peer>(
    runtime: &Runtime,
    peer: &P,
    key: &str,
    tasks: usize,
    time: Duration,
) -> Result<Outcome> {
    let contestants: Vec<Arc<Contestant>> = (0..tasks).map(|_| Arc::default()).collect();
    let start = Instant::now();
    let running: Vec<_> = contestants
        .iter()
        .map(|own| {
            let (peer, key, own) = (peer.clone(), key.to_owned(), Arc::clone(own));
            runtime.spawn(async move {
                loop {
                    let asked = start.elapsed();
                    own.waits_since.store(nanos(asked), Ordering::Relaxed);
                    let guard = peer.acquire(&key).await?;
                    let waited = start.elapsed() - asked;
                    own.worst.fetch_max(nanos(waited), Ordering::Relaxed);
                    own.served.fetch_add(1, Ordering::Relaxed);
                    peer.release(guard).await?;
                    if start.elapsed() > time {
                        return anyhow::Ok(());
                    }
                }
            })
        })
        .collect();
    // This thread is none of the runtime's: it may sleep even when a library blocks those.
    std::thread::sleep(time.saturating_sub(start.elapsed()));
    let end = start.elapsed();
    let served: Vec<u64> =
        contestants.iter().map(|one| one.served.load(Ordering::Relaxed)).collect();
    let worst = contestants.iter().map(|one| one.worst_by(end)).max().unwrap_or_default();
    for task in running {
        if task.is_finished() {
            runtime.block_on(task)??;
        } else {
            task.abort();
        }
    }
    Ok(Outcome { served, worst: worst.as_secs_f64() })
}

impl Default for Contestant {
    fn default() -> Self {
        Self { served: 0.into(), worst: 0.into(), waits_since: 0.into() }
    }
}

impl Contestant {
    /// Its longest wait, the one that has not ended included.
    fn worst_by(&self, end: Duration) -> Duration {
        let since = Duration::from_nanos(self.waits_since.load(Ordering::Relaxed));
        let open = end.saturating_sub(since);
        Duration::from_nanos(self.worst.load(Ordering::Relaxed)).max(open)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How many times more the most served one got than the least.
pub(crate) fn spread(served: &[u64]) -> f64 {
    let most = served.iter().max().copied().unwrap_or_default();
    let least = served.iter().min().copied().unwrap_or_default();
    if least == 0 { f64::INFINITY } else { most as f64 / least as f64 }
}
