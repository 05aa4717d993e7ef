//! A holder that dies.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use testbed::{ChildIo, Server};

use super::Work;
use crate::child;
use crate::clock;
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit, quantile};
use crate::scene::{Scene, end, on_worker, runtime};

/// Short, so that a round does not take for ever.
const TTL: Duration = Duration::from_millis(800);

pub(super) const WORK: Work = Work {
    id: "crash",
    title: "The holder is killed",
    what: "A process that holds the lock is killed while another one waits. The time is from the \
           end of the dead holder's lease to the next holder.",
    metrics: &[
        Metric { id: "p50", title: "median", unit: Unit::Seconds },
        Metric { id: "most", title: "longest", unit: Unit::Seconds },
    ],
    peers: PeerId::WAITING,
    need: Some(Need::Waiting),
    rounds: (3, 2),
    goals: &[Goal::ours("p50", Bound::AtMost(0.005)), Goal::ours("most", Bound::AtMost(0.012))],
    measure,
};

#[derive(Serialize, Deserialize)]
struct CrashOrder {
    peer: PeerId,
    url: String,
}

fn measure(peer: PeerId, scene: &Scene<'_>) -> Result<Sample> {
    with_peer!(peer, P => inherit::<P>(peer, scene))
}

fn inherit<P: Peer>(peer: PeerId, scene: &Scene<'_>) -> Result<Sample> {
    let runtime = runtime()?;
    let order = CrashOrder { peer, url: scene.server.url() };
    let url = order.url.clone();
    let successor = on_worker(&runtime, async move { P::open(&url, TTL).await })?;
    let mut times = Vec::new();
    for _ in 0..scene.times(4, 2) {
        let mut holder = child::start(ROLE, &order)?;
        holder.expect("held");
        let own = successor.clone();
        let waiting = runtime.spawn(async move {
            let guard = own.acquire("crash").await?;
            let now = clock::now();
            own.release(guard).await?;
            anyhow::Ok(now)
        });
        sleep(Duration::from_millis(100));
        holder.kill9();
        let expiry = expiry(scene.server)?;
        let got = runtime.block_on(waiting)??;
        times.push(got.saturating_sub(expiry));
    }
    drop(successor);
    end(runtime);
    Ok([("p50", quantile(&mut times, 0.5)), ("most", quantile(&mut times, 1.0))].into())
}

/// When the only lock there is ends, by the server's word.
fn expiry(server: &Server) -> Result<Duration> {
    let keys = server.keys();
    let lock = keys.iter().find(|key| !key.contains(":~")).context("there is no lock")?;
    let left = server.pttl(lock).context("the lock is gone")?;
    Ok(clock::now() + Duration::from_millis(u64::try_from(left).context("a lock without a ttl")?))
}

pub(super) const ROLE: &str = "crash";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: CrashOrder| with_peer!(order.peer, P => hold::<P>(io, &order)));
}

fn hold<P: Peer>(io: &mut ChildIo, order: &CrashOrder) -> Result<()> {
    let runtime = runtime()?;
    let url = order.url.clone();
    let held = on_worker(&runtime, async move {
        let peer = P::open(&url, TTL).await?;
        let guard = peer.acquire("crash").await?;
        Ok((peer, guard))
    })?;
    io.say("held");
    io.hear();
    drop(held);
    Ok(())
}
