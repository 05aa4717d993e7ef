//! A hundred tasks in front of a lock that is held, and then given back.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Work;
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::traffic::Traffic;

const TASKS: usize = 100;

pub(super) const WORK: Work = Work {
    id: "waiting",
    title: "100 tasks wait for a held lock",
    what: "100 tasks of one client wait for a lock that another client holds. The figures count \
           what the clients send while they wait, and what their scripts call. Then the lock is \
           released, and each task takes it once.",
    metrics: &[
        Metric { id: "sent", title: "commands sent", unit: Unit::PerSecond },
        Metric { id: "inner", title: "executed inside scripts", unit: Unit::PerSecond },
        Metric { id: "drained", title: "all 100 served after", unit: Unit::Seconds },
    ],
    peers: PeerId::WAITING,
    need: Some(Need::WaitingInNumbers),
    rounds: (3, 2),
    goals: &[Goal::ours("sent", Bound::AtMost(4.0)), Goal::ours("drained", Bound::AtMost(0.030))],
    measure: |peer, scene| with_peer!(peer, P => measure::<P>(scene)),
};

/// How long the last of a hundred may wait.
const PATIENCE: Duration = Duration::from_secs(20);

fn measure<P: Peer>(scene: &Scene<'_>) -> Result<Sample> {
    let runtime = runtime()?;
    let url = scene.server.url();
    let (holder, guard, waiters) = on_worker(&runtime, async move {
        let holder = P::open(&url, LONG).await?;
        let guard = holder.acquire("waiting").await?;
        let waiters = P::open(&url, LONG).await?;
        waiters.warm_up().await?;
        Ok((holder, guard, waiters))
    })?;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let own = waiters.clone();
            runtime.spawn(async move {
                let guard = own.acquire("waiting").await?;
                own.release(guard).await?;
                anyhow::Ok(Instant::now())
            })
        })
        .collect();
    sleep(scene.lasting(1_500, 1_000));
    let traffic = Traffic::over(scene.server, scene.lasting(4_000, 2_000));

    let released = on_worker(&runtime, async move {
        let now = Instant::now();
        holder.release(guard).await?;
        Ok(now)
    })?;
    let mut last = released;
    for task in tasks {
        while !task.is_finished() {
            if released.elapsed() > PATIENCE {
                bail!("not all of the 100 tasks had the lock within {PATIENCE:?}");
            }
            sleep(Duration::from_micros(200));
        }
        last = last.max(runtime.block_on(task)??);
    }
    drop(waiters);
    end(runtime);
    let drained = last.duration_since(released).as_secs_f64();
    Ok([("sent", traffic.sent), ("inner", traffic.inner), ("drained", drained)].into())
}
