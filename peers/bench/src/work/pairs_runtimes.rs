//! Many tasks that lock and unlock, on runtimes of one thread each.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tokio::task::JoinSet;

use super::Work;
use crate::peer::{Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, current_thread};

const RUNTIMES: usize = 8;
const TASKS: usize = 8;

/// How many pairs of each task come before.
const WARM_UP: u32 = 24;

pub(super) const METRICS: &[Metric] =
    &[Metric { id: "rate", title: "pairs", unit: Unit::PerSecond }];

pub(super) const WORK: Work = Work {
    id: "pairs-64-runtimes",
    title: "Lock and unlock, 64 keys on 8 current-thread runtimes",
    what: "8 threads have a separate runtime each, as in actix-web. Each runs 8 tasks, and each \
           task takes and releases its lock as fast as it can. All threads share one `Locks`. \
           Every other library is opened on each thread.",
    metrics: METRICS,
    peers: &[PeerId::Ours, PeerId::Bare, PeerId::BareNoDelay, PeerId::Rslock, PeerId::Rlock],
    need: None,
    rounds: (7, 5),
    goals: &[],
    measure: |peer, scene| {
        let (url, is_shared) = (scene.server.url(), peer == PeerId::Ours);
        with_peer!(peer, P => measure::<P>(scene, &url, is_shared))
    },
};

pub(super) fn measure<P: Peer>(scene: &Scene<'_>, url: &str, is_shared: bool) -> Result<Sample> {
    let time = scene.lasting(800, 300);
    let first = current_thread()?;
    let shared = is_shared.then(|| first.block_on(P::open(url, LONG))).transpose()?;
    let ready = Arc::new(Barrier::new(RUNTIMES));
    let threads: Vec<_> = (0..RUNTIMES)
        .map(|number| {
            let (url, shared, ready) = (url.to_owned(), shared.clone(), Arc::clone(&ready));
            thread::spawn(move || {
                let runtime = current_thread()?;
                let peer = match shared {
                    Some(peer) => peer,
                    None => runtime.block_on(P::open(&url, LONG))?,
                };
                runtime.block_on(tasks(&peer, number, WARM_UP, Duration::ZERO))?;
                ready.wait();
                let start = Instant::now();
                let pairs = runtime.block_on(tasks(&peer, number, 0, time))?;
                anyhow::Ok((pairs, start.elapsed()))
            })
        })
        .collect();
    let mut rate = 0.0;
    for thread in threads {
        let (pairs, ran) = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        rate += f64::from(pairs) / ran.as_secs_f64();
    }
    Ok([("rate", rate)].into())
}

/// Pairs of all tasks of a runtime: so many, and on for so long.
async fn tasks<P: Peer>(peer: &P, runtime: usize, least: u32, time: Duration) -> Result<u32> {
    let mut running = JoinSet::new();
    for number in 0..TASKS {
        let (peer, key) = (peer.clone(), format!("pairs:{runtime}:{number}"));
        running.spawn(async move {
            let (start, mut pairs) = (Instant::now(), 0);
            while pairs < least || start.elapsed() < time {
                let guard = peer.acquire(&key).await?;
                peer.release(guard).await?;
                pairs += 1;
            }
            anyhow::Ok(pairs)
        });
    }
    let mut all = 0;
    while let Some(ended) = running.join_next().await {
        all += ended??;
    }
    Ok(all)
}
