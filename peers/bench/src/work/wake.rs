//! Two hundred managers in front of one lock, and one release after the other.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Work;
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::traffic::{Traffic, active_clients};

const MANAGERS: usize = 200;

/// How long after a release those that send something count as woken by it: a hand-over takes a
/// tenth of this, and of those that look by the clock few do so meanwhile.
const MOMENT: Duration = Duration::from_millis(10);

/// In how many such moments before a release those are counted that send something anyway.
const QUIET: u32 = 15;

pub(super) const WORK: Work = Work {
    id: "wake",
    title: "One release, 200 managers waiting",
    what: "200 managers, each with separate connections, wait for one lock, and release it one \
           after the other. The figure says how many waiting managers send something within 10 ms \
           of a release. Managers that look at intervals would have sent something anyway, so \
           their average number in the same time before the release is subtracted.",
    metrics: &[
        Metric { id: "woken", title: "managers woken", unit: Unit::Count },
        Metric { id: "sent", title: "commands sent while nothing happens", unit: Unit::PerSecond },
    ],
    peers: PeerId::WAITING,
    need: Some(Need::WaitingInNumbers),
    rounds: (3, 2),
    // One wakes; the rest is room for the noise of those that look by the clock.
    goals: &[Goal::ours("woken", Bound::AtMost(1.5))],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene)),
};

fn measure<P: Peer>(scene: &Scene<'_>) -> Result<Sample> {
    let runtime = runtime()?;
    let url = scene.server.url();
    let (tell, mut owners) = mpsc::unbounded_channel();
    let (first, waiting) = on_worker(&runtime, async move {
        let holder = P::open(&url, LONG).await?;
        let guard = holder.acquire("wake").await?;
        let mut waiting = JoinSet::new();
        for _ in 0..MANAGERS {
            let (own, tell) = (P::open(&url, LONG).await?, tell.clone());
            waiting.spawn(async move {
                let guard = own.acquire("wake").await;
                // At the end the receiver is gone.
                let _ = tell.send((own, guard));
            });
        }
        Ok(((holder, guard), waiting))
    })?;
    sleep(scene.lasting(3_000, 2_000));
    let sent = Traffic::over(scene.server, Duration::from_secs(1)).sent;

    let monitor = scene.server.monitor();
    let releases = scene.times(30, 10);
    let mut woken = 0.0;
    // A manager that has had its turn waits for nothing but stays, because leaving would send
    // commands.
    let mut done = Vec::new();
    let (mut holder, mut guard) = first;
    for _ in 0..releases {
        sleep(MOMENT * (QUIET + 2));
        let own = holder.clone();
        let released = on_worker(&runtime, async move {
            let now = seconds();
            own.release(guard).await?;
            Ok(now)
        })?;
        done.push(holder);
        let next = runtime.block_on(async { timeout(LONG, owners.recv()).await });
        let next = next.context("no waiter took it")?.context("all have left")?;
        (holder, guard) = (next.0, next.1?);
        sleep(MOMENT * 2);
        let in_moment = |number: f64| {
            let from = released + number * MOMENT.as_secs_f64();
            active_clients(&monitor, from, from + MOMENT.as_secs_f64()) as f64
        };
        let before = (1..=QUIET).map(|number| in_moment(-f64::from(number)));
        let anyway = before.sum::<f64>() / f64::from(QUIET);
        // The manager that releases does not count as woken by it.
        woken += in_moment(0.0) - 1.0 - anyway;
        monitor.clear();
    }
    drop((monitor, waiting, done, holder, guard));
    end(runtime);
    Ok([("woken", woken / releases as f64), ("sent", sent)].into())
}

/// The time as the server tells it.
fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
