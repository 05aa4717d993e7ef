//! One task that locks and unlocks.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Work;
use crate::goal::{Bound, Goal};
use crate::peer::{Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit, quantile};
use crate::scene::{LONG, Scene, end, on_worker, runtime};

pub(super) const WORK: Work = Work {
    id: "pair",
    title: "Lock and unlock, one task",
    what: "One task takes a free lock and gives it back, over and over.",
    metrics: &[
        Metric { id: "p50", title: "median", unit: Unit::Seconds },
        Metric { id: "p99", title: "99 of 100 below", unit: Unit::Seconds },
    ],
    peers: PeerId::ALL,
    need: None,
    rounds: (9, 5),
    goals: &[
        Goal::ours("p50", Bound::AtMostTimes(1.10, &[PeerId::Bare])),
        Goal {
            metric: "p50",
            who: PeerId::InBackground,
            bound: Bound::AtMostTimes(0.65, &[PeerId::Bare]),
            on: None,
        },
    ],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene)),
};

fn measure<P: Peer>(scene: &Scene<'_>) -> Result<Sample> {
    let runtime = runtime()?;
    let (url, time) = (scene.server.url(), scene.lasting(800, 250));
    let mut times = on_worker(&runtime, async move {
        let peer = P::open(&url, LONG).await?;
        pairs(&peer, time / 8).await?;
        pairs(&peer, time).await
    })?;
    end(runtime);
    Ok([("p50", quantile(&mut times, 0.5)), ("p99", quantile(&mut times, 0.99))].into())
}

async fn pairs<P: Peer>(peer: &P, time: Duration) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(1 << 14);
    let start = Instant::now();
    while start.elapsed() < time {
        let before = Instant::now();
        let guard = peer.acquire("pair").await?;
        peer.release(guard).await?;
        times.push(before.elapsed());
    }
    Ok(times)
}
