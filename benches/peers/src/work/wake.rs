//! Two hundred managers in front of one lock, and one release.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use super::Work;
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::traffic::active_clients;

const MANAGERS: usize = 200;

/// The time around the release in which clients are counted.
const MOMENT: Duration = Duration::from_millis(60);

pub(super) const WORK: Work = Work {
    id: "wake",
    title: "One release, 200 managers waiting",
    what: "200 managers, each with connections of its own, wait for one lock, and it is given \
           back once: how many of them the release makes send something. (Those that send \
           something in as much time without a release are counted before, and taken off.)",
    metrics: &[
        Metric { id: "woken", title: "managers woken", unit: Unit::Count },
        Metric { id: "polling", title: "managers sending anyway", unit: Unit::Count },
    ],
    peers: PeerId::WAITING,
    need: Some(Need::WaitingInNumbers),
    rounds: (3, 2),
    // One wakes; the few beyond it are the noise of those that look by the clock.
    goals: &[Goal::ours("woken", Bound::AtMost(4.0))],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene)),
};

fn measure<P: Peer>(scene: &Scene<'_>) -> Result<Sample> {
    let runtime = runtime()?;
    let url = scene.server.url();
    let (holder, guard, waiting) = on_worker(&runtime, async move {
        let holder = P::open(&url, LONG).await?;
        let guard = holder.acquire("wake").await?;
        let mut waiting = JoinSet::new();
        for _ in 0..MANAGERS {
            let own = P::open(&url, LONG).await?;
            waiting.spawn(async move {
                // Held to the end: only the first one is waited for.
                let guard = own.acquire("wake").await;
                std::future::pending::<()>().await;
                drop((own, guard));
            });
        }
        Ok((holder, guard, waiting))
    })?;
    sleep(scene.lasting(3_000, 2_000));
    let windows: usize = 5;
    let quiet: usize = (0..windows).map(|_| active_clients(scene.server, MOMENT)).sum();
    let quiet = quiet as f64 / windows as f64;
    let release = runtime.spawn(async move {
        // The window opens first.
        tokio::time::sleep(MOMENT / 4).await;
        holder.release(guard).await?;
        anyhow::Ok(holder)
    });
    let busy = active_clients(scene.server, MOMENT) as f64;
    let holder = runtime.block_on(release)??;
    drop((waiting, holder));
    end(runtime);
    // The one that releases is not woken by it.
    Ok([("woken", (busy - quiet - 1.0).max(0.0)), ("polling", quiet)].into())
}
