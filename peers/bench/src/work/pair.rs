//! One task that locks and unlocks.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Work;
use crate::goal::{Bound, Goal};
use crate::peer::{Bare, Ours, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit, quantile};
use crate::scene::{LONG, Scene, current_thread, end, on_worker, runtime};

pub(super) const WORK: Work = Work {
    id: "pair",
    title: "Lock and unlock, one task",
    what: "One task takes and releases a free lock, over and over. It runs as a task spawned on \
           the runtime's workers, then inside `block_on` on the main thread, as in many programs \
           and most tests, and then on a current-thread runtime. The main thread is not a worker, \
           so workers have to wake it, which costs all libraries the same. Client and server run \
           on separate processors, as on two machines.",
    metrics: METRICS,
    peers: PeerId::ALL,
    need: None,
    rounds: (7, 5),
    goals: &[
        Goal::ours("p50", Bound::AtMostTimes(1.10, PeerId::BARE)),
        Goal::ours("main-p50", Bound::AtMostTimes(1.10, PeerId::BARE)),
        Goal::ours("current-p50", Bound::AtMostTimes(1.10, PeerId::BARE)),
    ],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene, scene.server.url())),
};

pub(super) const METRICS: &[Metric] = &[
    Metric { id: "p50", title: "spawned: median", unit: Unit::Seconds },
    Metric { id: "p99", title: "spawned: 99 of 100 below", unit: Unit::Seconds },
    Metric { id: "main-p50", title: "block_on: median", unit: Unit::Seconds },
    Metric { id: "current-p50", title: "current-thread: median", unit: Unit::Seconds },
];

pub(super) const ON_CLUSTER: Work = Work {
    id: "cluster-pair",
    title: "Lock and unlock on three nodes, one task",
    what: "The same on a cluster of three nodes, compared with the driver's cluster client.",
    metrics: METRICS,
    peers: &[PeerId::Ours, PeerId::BareCluster],
    need: None,
    rounds: (7, 5),
    goals: &[Goal::ours("p50", Bound::AtMostTimes(1.15, &[PeerId::BareCluster]))],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene, scene.cluster_url())),
};

pub(super) const ON_REPLICA: Work = Work {
    id: "replicated-pair",
    title: "Lock and unlock where a replica must have it, one task",
    what: "The same with `replicas(1)`, compared with the bare driver, which sends a `WAIT` for \
           one replica after each command.",
    metrics: METRICS,
    peers: &[PeerId::Replicated, PeerId::BareReplicated],
    need: None,
    rounds: (7, 5),
    goals: &[Goal {
        metric: "p50",
        who: PeerId::Replicated,
        bound: Bound::AtMostTimes(1.25, &[PeerId::BareReplicated]),
    }],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene, scene.replicated_url())),
};

pub(super) const OVER_UNIX: Work = Work {
    id: "pair-unix",
    title: "Lock and unlock over a unix socket, one task",
    what: "The same over the server's unix socket.",
    metrics: METRICS,
    peers: &[PeerId::Ours, PeerId::Bare],
    need: None,
    rounds: (7, 5),
    goals: &[],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene, scene.server.unix_url())),
};

pub(super) const OVER_TLS: Work = Work {
    id: "pair-tls",
    title: "Lock and unlock over TLS, one task",
    what: "The same over TLS, with a private authority.",
    metrics: METRICS,
    peers: &[PeerId::Ours, PeerId::Bare],
    need: None,
    rounds: (7, 5),
    goals: &[],
    measure: |peer, scene| {
        let (port, authority) = scene.tls()?;
        over_tls(peer, scene, format!("rediss://127.0.0.1:{port}"), authority)
    },
};

pub(super) fn over_tls(
    peer: PeerId,
    scene: &Scene<'_>,
    url: String,
    authority: Vec<u8>,
) -> Result<Sample> {
    match peer {
        PeerId::Ours => settings(scene, || {
            let (url, authority) = (url.clone(), authority.clone());
            async move { Ours::over_tls(&url, LONG, authority).await }
        }),
        _ => settings(scene, || {
            let (url, authority) = (url.clone(), authority.clone());
            async move { Bare::over_tls(&url, LONG, authority).await }
        }),
    }
}

pub(super) fn measure<P: Peer>(scene: &Scene<'_>, url: String) -> Result<Sample> {
    settings(scene, || {
        let url = url.clone();
        async move { P::open(&url, LONG).await }
    })
}

/// One library, in the three settings in which a task runs.
fn settings<P: Peer, F>(scene: &Scene<'_>, open: impl Fn() -> F) -> Result<Sample>
where
    F: Future<Output = Result<P>> + Send + 'static,
{
    let _apart = scene.apart()?;
    let runtime = runtime()?;
    let time = scene.lasting(500, 250);
    let opening = open();
    let (peer, mut spawned) = on_worker(&runtime, async move {
        let peer = opening.await?;
        peer.warm_up().await?;
        let times = pairs(&peer, time).await?;
        Ok((peer, times))
    })?;
    let mut on_main = runtime.block_on(pairs(&peer, time))?;
    drop(peer);
    end(runtime);
    let current = current_thread()?;
    let mut on_current = current.block_on(async {
        let peer = open().await?;
        peer.warm_up().await?;
        pairs(&peer, time).await
    })?;
    end(current);
    Ok([
        ("p50", quantile(&mut spawned, 0.5)),
        ("p99", quantile(&mut spawned, 0.99)),
        ("main-p50", quantile(&mut on_main, 0.5)),
        ("current-p50", quantile(&mut on_current, 0.5)),
    ]
    .into())
}

pub(super) async fn pairs<P: Peer>(peer: &P, time: Duration) -> Result<Vec<Duration>> {
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
