//! A plain thread that locks and unlocks.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use redis::Value;
use redis_lock_core::Locks;

use super::Work;
use crate::peer::{PeerId, RELEASE};
use crate::sample::{Metric, Sample, Unit, quantile};
use crate::scene::{LONG, Scene};

pub(super) const METRICS: &[Metric] = &[
    Metric { id: "p50", title: "median", unit: Unit::Seconds },
    Metric { id: "p99", title: "99 of 100 below", unit: Unit::Seconds },
];

pub(super) const WORK: Work = Work {
    id: "pair-thread",
    title: "Lock and unlock, a plain thread",
    what: "A plain thread without a runtime takes and releases a free lock, over and over, \
           compared with the driver's synchronous client. Client and server run on separate \
           processors.",
    metrics: METRICS,
    peers: &[PeerId::Ours, PeerId::Bare],
    need: None,
    rounds: (7, 5),
    goals: &[],
    measure: |peer, scene| measure(peer, scene, &scene.server.url()),
};

pub(super) fn measure(peer: PeerId, scene: &Scene<'_>, url: &str) -> Result<Sample> {
    let _apart = scene.apart()?;
    let time = scene.lasting(500, 250);
    let mut times = match peer {
        PeerId::Ours => ours(url, time)?,
        PeerId::Bare => bare(url, time)?,
        other => bail!("{other} has no synchronous side"),
    };
    Ok([("p50", quantile(&mut times, 0.5)), ("p99", quantile(&mut times, 0.99))].into())
}

/// Pairs that are not counted, then pairs for so long.
fn pairs(time: Duration, mut pair: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    for _ in 0..600 {
        pair()?;
    }
    let mut times = Vec::with_capacity(1 << 14);
    let start = Instant::now();
    while start.elapsed() < time {
        let before = Instant::now();
        pair()?;
        times.push(before.elapsed());
    }
    Ok(times)
}

fn ours(url: &str, time: Duration) -> Result<Vec<Duration>> {
    let locks = Locks::builder().url(url).ttl(LONG).open()?;
    pairs(time, || {
        let guard = locks.mutex("pair").blocking_acquire()?;
        Ok(guard.blocking_release()?)
    })
}

fn bare(url: &str, time: Duration) -> Result<Vec<Duration>> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    let ttl = u64::try_from(LONG.as_millis())?;
    pairs(time, || {
        let mut set = redis::cmd("SET");
        set.arg("pair").arg("token").arg("NX").arg("PX").arg(ttl);
        ensure!(set.query::<Value>(&mut connection)? == Value::Okay, "the lock was not free");
        let deleted: u32 = RELEASE.key("pair").arg("token").invoke(&mut connection)?;
        ensure!(deleted == 1, "the lock was not ours any more");
        Ok(())
    })
}
