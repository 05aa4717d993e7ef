//! Tasks of one process that all want the same lock.

use anyhow::Result;

use super::Work;
use crate::contest::{fight, spread};
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, end, on_worker, runtime};

pub(super) const WORK: Work = Work {
    id: "hot-key",
    title: "One hot key, 16 tasks in one process",
    what: "16 tasks of one process take and release the same lock, as fast as they can. Tokio's \
           mutex, which works in one process only, is shown for comparison.",
    metrics: &[
        Metric { id: "rate", title: "locks", unit: Unit::PerSecond },
        Metric { id: "spread", title: "most served / least served", unit: Unit::Times },
        Metric { id: "worst", title: "worst wait", unit: Unit::Seconds },
    ],
    peers: &[
        PeerId::Ours,
        PeerId::TokioMutex,
        PeerId::Bare,
        PeerId::Rslock,
        PeerId::Rlock,
        PeerId::Redlock,
        PeerId::DistributedLock,
    ],
    need: Some(Need::Waiting),
    rounds: (5, 3),
    goals: &[
        Goal::ours("rate", Bound::AtLeastTimes(50.0, &[PeerId::Rslock])),
        Goal::ours("spread", Bound::AtMost(2.0)),
    ],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene)),
};

fn measure<P: Peer>(scene: &Scene<'_>) -> Result<Sample> {
    let runtime = runtime()?;
    let (url, time) = (scene.server.url(), scene.lasting(2_000, 700));
    let peer = on_worker(&runtime, async move {
        let peer = P::open(&url, LONG).await?;
        peer.warm_up().await?;
        Ok(peer)
    })?;
    let outcome = fight(&runtime, &peer, "hot", 16, time)?;
    drop(peer);
    end(runtime);
    let rate = outcome.served.iter().sum::<u64>() as f64 / time.as_secs_f64();
    Ok([("rate", rate), ("spread", spread(&outcome.served)), ("worst", outcome.worst)].into())
}
