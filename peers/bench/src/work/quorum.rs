//! The same on three independent servers, of which a majority has to agree.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Work, hot_processes, pair, pairs};
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit, quantile};
use crate::scene::{LONG, Scene, end, on_worker, runtime};

const PEERS: &[PeerId] = &[PeerId::Ours, PeerId::Rslock, PeerId::Redlock];
const RSLOCK: &[PeerId] = &[PeerId::Rslock];

pub(super) const PAIR: Work = Work {
    id: "quorum-pair",
    title: "Lock and unlock on a quorum of three, one task",
    what: "One task takes and releases a free lock on three independent servers, over and over.",
    metrics: pair::METRICS,
    peers: PEERS,
    need: None,
    rounds: (7, 5),
    goals: &[Goal::ours("p50", Bound::AtMostTimes(1.15, RSLOCK))],
    measure: |peer, scene| with_peer!(peer, P => pair::measure::<P>(scene, scene.quorum_url())),
};

pub(super) const PAIRS: Work = Work {
    id: "quorum-pairs-64",
    title: "Lock and unlock on a quorum of three, 64 tasks on 64 keys",
    what: "Each of 64 tasks takes and releases a separate lock on three independent servers, as \
           fast as it can.",
    metrics: &[
        Metric { id: "rate", title: "pairs", unit: Unit::PerSecond },
        Metric { id: "client", title: "the process computes for a pair", unit: Unit::Seconds },
    ],
    peers: PEERS,
    need: None,
    rounds: (7, 5),
    goals: &[Goal::ours("rate", Bound::AtLeastTimes(1.3, RSLOCK))],
    measure: |peer, scene| with_peer!(peer, P => pairs::measure::<P>(scene, scene.quorum_url(), 64)),
};

pub(super) const HOT: Work = Work {
    id: "quorum-hot",
    title: "One hot key on a quorum of three, 4 processes with 5 tasks each",
    what: "4 processes of 5 tasks take and give back the same lock on three independent servers, as \
           fast as they can.",
    metrics: hot_processes::METRICS,
    peers: PEERS,
    need: Some(Need::WaitingInNumbers),
    rounds: (5, 3),
    goals: &[
        Goal::ours("rate", Bound::AtLeastTimes(20.0, RSLOCK)),
        Goal::ours("commands", Bound::AtMostTimes(0.25, RSLOCK)),
    ],
    measure: |peer, scene| {
        let servers: Vec<_> = scene.quorum().iter().collect();
        hot_processes::measure(peer, scene, scene.quorum_url(), &servers, 5)
    },
};

pub(super) const DOWN: Work = Work {
    id: "quorum-down",
    title: "Lock and unlock on a quorum of three, one of which is down",
    what: "One task takes and releases a lock, over and over. During that, one of the three \
           servers is killed, and started again at the end.",
    metrics: &[
        Metric { id: "p50", title: "median", unit: Unit::Seconds },
        Metric { id: "longest", title: "longest", unit: Unit::Seconds },
    ],
    peers: &[PeerId::Ours, PeerId::Rslock],
    need: None,
    rounds: (5, 3),
    // A node may take 500 ms to answer.
    goals: &[Goal::ours("longest", Bound::AtMost(0.3))],
    measure: |peer, scene| with_peer!(peer, P => down::<P>(scene)),
};

fn down<P: Peer>(scene: &Scene<'_>) -> Result<Sample> {
    let (runtime, time) = (runtime()?, scene.lasting(2_000, 1_000));
    let url = scene.quorum_url();
    let peer = on_worker(&runtime, async move {
        let peer = P::open(&url, LONG).await?;
        peer.warm_up().await?;
        Ok(peer)
    })?;
    let pairs = runtime.spawn(async move { pair::pairs(&peer, time).await });
    std::thread::sleep(Duration::from_millis(100));
    let since = Instant::now();
    let node = scene.quorum().last();
    node.into_iter().for_each(testbed::Server::kill9);
    std::thread::sleep(time.saturating_sub(since.elapsed()));
    let times = runtime.block_on(pairs)?;
    node.into_iter().for_each(testbed::Server::restart);
    let mut times = times?;
    end(runtime);
    let p50 = quantile(&mut times, 0.5);
    Ok([("p50", p50), ("longest", quantile(&mut times, 1.0))].into())
}
