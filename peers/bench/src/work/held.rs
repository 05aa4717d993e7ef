//! Many locks, held for longer than their lease.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use testbed::ChildIo;

use super::Work;
use crate::child;
use crate::clock;
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{Scene, end, on_worker, runtime};
use crate::server_load::ServerLoad;

const SOME: usize = 10_000;
const MANY: usize = 100_000;

/// How long taking all of them may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Few enough at once that what is under way does not count as memory of what is held.
const AT_ONCE: usize = 64;

const METRICS: &[Metric] = &[
    Metric { id: "core", title: "of a core", unit: Unit::Share },
    Metric { id: "server", title: "of the server's core", unit: Unit::Share },
    Metric { id: "lease", title: "it computes for a lock in each lease", unit: Unit::Seconds },
    Metric { id: "memory", title: "memory per lock", unit: Unit::Bytes },
    Metric { id: "lost", title: "locks lost", unit: Unit::Count },
];

pub(super) const WORK: Work = Work {
    id: "held",
    title: "10,000 held locks, renewed",
    what: "A process holds 10,000 locks with a lease of 6 s for more than two leases.",
    metrics: METRICS,
    peers: PeerId::WAITING,
    need: Some(Need::Renewal),
    rounds: (2, 1),
    goals: &[
        Goal::ours("lost", Bound::AtMost(0.0)),
        Goal::ours("core", Bound::AtMost(0.04)),
        Goal::ours("memory", Bound::AtMost(1_600.0)),
    ],
    measure: |peer, scene| {
        measure(peer, scene, SOME, Duration::from_secs(6), scene.lasting(13_000, 7_000))
    },
};

pub(super) const LARGE: Work = Work {
    id: "held-100k",
    title: "100,000 held locks, renewed",
    what: "A process takes 100,000 locks with a lease of 30 s, evenly over 10 s, and holds them for \
           longer than one lease. The bare driver renews each lock by a separate command.",
    metrics: METRICS,
    peers: &[PeerId::Ours, PeerId::BareRenewing, PeerId::Rlock],
    need: Some(Need::Renewal),
    rounds: (1, 1),
    goals: &[Goal::ours("lost", Bound::AtMost(0.0))],
    measure: |peer, scene| {
        measure(peer, scene, MANY, Duration::from_secs(30), scene.lasting(45_000, 32_000))
    },
};

#[derive(Serialize, Deserialize)]
struct HeldOrder {
    peer: PeerId,
    url: String,
    locks: usize,
    ttl: Duration,
    /// Within which time all are taken.
    within: Duration,
    millis: u64,
}

#[derive(Serialize, Deserialize)]
struct Report {
    held: usize,
    core: f64,
    memory: f64,
}

fn measure(
    peer: PeerId,
    scene: &Scene<'_>,
    locks: usize,
    ttl: Duration,
    time: Duration,
) -> Result<Sample> {
    let millis = u64::try_from(time.as_millis())?;
    let within = if locks == MANY { ttl / 3 } else { Duration::ZERO };
    let order = HeldOrder { peer, url: scene.server.url(), locks, ttl, within, millis };
    let mut keeper = child::start(ROLE, &order)?;
    keeper.expect_within(PATIENCE, "holding");
    let server = ServerLoad::begin(scene.server)?;
    // Sleeps beside the child, which says nothing meanwhile.
    let report = keeper.expect_within(time + PATIENCE, "report");
    let server = server.share(scene.server)?;
    let report: Report = serde_json::from_str(&report)?;
    let keys: usize = scene.server.run("DBSIZE");
    keeper.kill9();
    let kept = report.held.min(keys);
    let lost = locks.saturating_sub(kept) as f64;
    let lease = server * ttl.as_secs_f64() / locks as f64;
    let (core, memory) = (report.core, report.memory);
    let lasting = [("core", core), ("server", server), ("lease", lease)];
    Ok(lasting.into_iter().chain([("memory", memory), ("lost", lost)]).collect())
}

pub(super) const ROLE: &str = "held";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: HeldOrder| with_peer!(order.peer, P => hold::<P>(io, &order)));
}

fn hold<P: Peer>(io: &mut ChildIo, order: &HeldOrder) -> Result<()> {
    let runtime = runtime()?;
    let (url, ttl, locks) = (order.url.clone(), order.ttl, order.locks);
    let peer = on_worker(&runtime, async move {
        let peer = P::open(&url, ttl).await?;
        peer.warm_up().await?;
        // Whatever is made on first use is not memory of the locks.
        for guard in acquire_all(&peer, "warm-up", AT_ONCE * 4, Duration::ZERO).await? {
            peer.release(guard).await?;
        }
        Ok(peer)
    })?;
    let within = order.within;
    let before = resident()?;
    let own = peer.clone();
    let guards =
        on_worker(&runtime, async move { acquire_all(&own, "held", locks, within).await })?;
    let memory = (resident()? - before) / locks as f64;
    io.say("holding");

    let (start, computed) = (Instant::now(), clock::computed());
    sleep(Duration::from_millis(order.millis));
    let core = (clock::computed() - computed).as_secs_f64() / start.elapsed().as_secs_f64();
    let held = guards.iter().filter(|guard| P::is_held(guard)).count();
    io.say(&format!("report {}", serde_json::to_string(&Report { held, core, memory })?));
    io.hear();
    drop((guards, peer));
    end(runtime);
    Ok(())
}

/// Takes so many locks within this time, at an even pace, or as fast as it can.
async fn acquire_all<P: Peer>(
    peer: &P,
    name: &str,
    count: usize,
    within: Duration,
) -> Result<Vec<P::Guard>> {
    let start = Instant::now();
    let pace = within / u32::try_from(count)?;
    let one = |number: u32| async move {
        tokio::time::sleep_until((start + pace * number).into()).await;
        peer.acquire(&format!("{name}:{number}")).await
    };
    let count = u32::try_from(count)?;
    stream::iter(0..count).map(one).buffer_unordered(AT_ONCE).try_collect().await
}

/// The memory that this process has from the system, in bytes.
fn resident() -> Result<f64> {
    const PAGE: f64 = 4096.0;
    let text = std::fs::read_to_string("/proc/self/statm").context("needs /proc")?;
    let pages: f64 = text.split_whitespace().nth(1).context("statm has a second word")?.parse()?;
    Ok(pages * PAGE)
}
