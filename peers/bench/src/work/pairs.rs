//! Many tasks that lock and unlock, none of them in another's way.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Result;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Work;
use crate::clock;
use crate::goal::{Bound, Goal};
use crate::peer::{Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::server_load::ServerLoad;

/// How many pairs come before, in all.
const WARM_UP: usize = 1_500;

const RATE: Metric = Metric { id: "rate", title: "pairs", unit: Unit::PerSecond };

pub(super) const METRICS: &[Metric] = &[
    RATE,
    Metric { id: "server", title: "the server computes for a pair", unit: Unit::Seconds },
    Metric { id: "client", title: "the process computes for a pair", unit: Unit::Seconds },
];

pub(super) const ON_64: Work = Work {
    id: "pairs-64",
    title: "Lock and unlock, 64 tasks on 64 keys",
    what: "Each of 64 tasks takes and releases a separate lock, as fast as it can.",
    metrics: METRICS,
    peers: PeerId::ALL,
    need: None,
    rounds: (7, 5),
    goals: &[
        Goal::ours("rate", Bound::AtLeastTimes(1.0, PeerId::BARE)),
        Goal::ours("rate", Bound::AtLeastTimes(1.2, &[PeerId::Rslock, PeerId::Rlock])),
    ],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene, scene.server.url(), 64)),
};

pub(super) const ON_512: Work = Work {
    id: "pairs-512",
    title: "Lock and unlock, 512 tasks on 512 keys",
    what: "The same with 512 tasks.",
    metrics: METRICS,
    peers: PeerId::ALL,
    need: None,
    rounds: (7, 5),
    goals: &[Goal::ours("rate", Bound::AtLeastTimes(0.9, PeerId::BARE))],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene, scene.server.url(), 512)),
};

pub(super) const ON_CLUSTER: Work = Work {
    id: "cluster-pairs-64",
    title: "Lock and unlock on three nodes, 64 tasks on 64 keys",
    what: "Each of 64 tasks takes and releases a separate lock on a cluster of three nodes, as \
           fast as it can.",
    metrics: &[RATE],
    peers: &[PeerId::Ours, PeerId::BareCluster],
    need: None,
    rounds: (7, 5),
    goals: &[Goal::ours("rate", Bound::AtLeastTimes(1.1, &[PeerId::BareCluster]))],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene, scene.cluster_url(), 64)),
};

pub(super) fn measure<P: Peer>(scene: &Scene<'_>, url: String, tasks: usize) -> Result<Sample> {
    let runtime = runtime()?;
    let time = scene.lasting(800, 300);
    let warm_up = (WARM_UP / tasks).max(4);
    let (server, client) = (ServerLoad::begin(scene.server)?, clock::computed());
    let (rate, pairs) = on_worker(&runtime, async move {
        let peer = P::open(&url, LONG).await?;
        let ready = Arc::new(Barrier::new(tasks + 1));
        let start = Arc::new(OnceLock::new());
        let mut running = JoinSet::new();
        for number in 0..tasks {
            let (peer, ready, start) = (peer.clone(), Arc::clone(&ready), Arc::clone(&start));
            running.spawn(async move {
                let key = format!("pairs:{number}");
                // A number of pairs and not a time: with a library that blocks its thread, each
                // task in turn would take the whole time.
                for _ in 0..warm_up {
                    let guard = peer.acquire(&key).await?;
                    peer.release(guard).await?;
                }
                ready.wait().await;
                // One clock for all: a library that blocks its thread lets tasks begin late.
                let start: &Instant = start.get_or_init(Instant::now);
                let mut pairs = 0_u32;
                while start.elapsed() < time {
                    let guard = peer.acquire(&key).await?;
                    peer.release(guard).await?;
                    pairs += 1;
                }
                anyhow::Ok((pairs, start.elapsed()))
            });
        }
        ready.wait().await;
        let (mut pairs, mut longest) = (0.0, time);
        while let Some(ended) = running.join_next().await {
            let (own, ran) = ended??;
            pairs += f64::from(own);
            longest = longest.max(ran);
        }
        Ok((pairs / longest.as_secs_f64(), pairs + (warm_up * tasks) as f64))
    })?;
    let server = server.seconds(scene.server)? / pairs;
    let client = (clock::computed() - client).as_secs_f64() / pairs;
    end(runtime);
    Ok([("rate", rate), ("server", server), ("client", client)].into())
}
