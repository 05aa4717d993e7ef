//! Locks that one process takes again and again, and another one now and then.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redis_lock_core::Locks;
use serde::{Deserialize, Serialize};
use testbed::ChildIo;

use super::{Work, hand_over};
use crate::child;
use crate::delay_line::DelayLine;
use crate::goal::{Bound, Goal};
use crate::peer::{Lingering, Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit, quantile};
use crate::scene::{LONG, Scene, end, on_worker, runtime};

pub(super) const AGAIN: Work = Work {
    id: "linger-again",
    title: "The same lock again and again, one task",
    what: "One task takes and releases the same lock, over and over. With `linger` its process \
           keeps the lease in between. Only the commands of the pairs are counted: a connected \
           process also sends a `PING` now and then.",
    metrics: &[
        Metric { id: "rate", title: "pairs", unit: Unit::PerSecond },
        Metric { id: "p50", title: "median", unit: Unit::Seconds },
        Metric { id: "commands", title: "commands", unit: Unit::Count },
    ],
    peers: &[PeerId::Lingering, PeerId::Ours, PeerId::TokioMutex],
    need: None,
    rounds: (7, 5),
    goals: &[
        Goal::lingering("rate", Bound::AtLeast(0.7e6)),
        Goal::lingering("commands", Bound::AtMost(0.0)),
    ],
    measure: |peer, scene| with_peer!(peer, P => again::<P>(scene)),
};

fn again<P: Peer>(scene: &Scene<'_>) -> Result<Sample> {
    let runtime = runtime()?;
    let (url, time) = (scene.server.url(), scene.lasting(800, 300));
    let peer = on_worker(&runtime, async move {
        let peer = P::open(&url, LONG).await?;
        peer.warm_up().await?;
        peer.release(peer.acquire("again").await?).await?;
        Ok(peer)
    })?;
    // A peer that leaves gives its idle lease back, which is no part of the pairs.
    let staying = peer.clone();
    // Clients that have just connected still subscribe.
    std::thread::sleep(Duration::from_millis(500));
    let before = Scene::commands(scene.server);
    let (pairs, ran, mut times) = on_worker(&runtime, async move {
        let (start, mut pairs, mut times) = (Instant::now(), 0.0, Vec::with_capacity(1 << 16));
        while start.elapsed() < time {
            // The clock is read for one of sixteen: it takes a good part of what is measured.
            let asked = Instant::now();
            peer.release(peer.acquire("again").await?).await?;
            times.push(asked.elapsed());
            for _ in 0..15 {
                peer.release(peer.acquire("again").await?).await?;
            }
            pairs += 16.0;
        }
        Ok((pairs, start.elapsed(), times))
    })?;
    let commands = Scene::commands(scene.server) - before;
    drop(staying);
    end(runtime);
    let rate = pairs / ran.as_secs_f64();
    Ok([("rate", rate), ("p50", quantile(&mut times, 0.5)), ("commands", commands)].into())
}

pub(super) const ASKED: Work = Work {
    id: "linger-asked",
    title: "Another process asks for a lease that lingers",
    what: "From the call of acquire to the lock, while another process keeps an idle lease of it. \
           The push floor of a hand-over is shown for comparison. Then the same by attempts that \
           do not wait, none of which may find the lock busy.",
    metrics: &[
        Metric { id: "p50", title: "median", unit: Unit::Seconds },
        Metric { id: "most", title: "longest", unit: Unit::Seconds },
        Metric { id: "busy", title: "attempts that were refused", unit: Unit::Count },
        Metric { id: "tries", title: "of attempts", unit: Unit::Count },
    ],
    peers: &[PeerId::Lingering, PeerId::Floor],
    need: Some(Need::Waiting),
    rounds: (5, 3),
    goals: &[
        Goal::lingering("p50", Bound::AtMostTimes(2.5, &[PeerId::Floor])),
        Goal::lingering("busy", Bound::AtMost(0.0)),
    ],
    measure: |peer, scene| match peer {
        PeerId::Floor => hand_over::floor(scene),
        _ => asked(scene),
    },
};

#[derive(Serialize, Deserialize)]
struct KeeperOrder {
    url: String,
    rounds: usize,
}

/// When a lease is asked for elsewhere before it was used, its key does not linger for a while. So
/// it is used this often before.
const USES: usize = 10;

fn asked(scene: &Scene<'_>) -> Result<Sample> {
    let (rounds, tries) = (scene.times(50, 12), scene.times(2_000, 200));
    let order = KeeperOrder { url: scene.server.url(), rounds: rounds + tries };
    let mut keeper = child::start(KEEPER, &order)?;
    let runtime = runtime()?;
    let locks = on_worker(&runtime, async move {
        let locks = Locks::builder().url(order.url).ttl(LONG).connect().await?;
        for _ in 0..600 {
            locks.mutex("warm-up").acquire().await?.release().await?;
        }
        Ok(locks)
    })?;
    let (mut times, mut busy) = (Vec::with_capacity(rounds), 0.0);
    for round in 0..rounds + tries {
        keeper.tell("keep");
        keeper.expect("idle");
        let (request, waits) = (locks.mutex("linger"), round < rounds);
        let took = on_worker(&runtime, async move {
            let start = Instant::now();
            let guard =
                if waits { Some(request.acquire().await?) } else { request.try_acquire().await? };
            let took = start.elapsed();
            let Some(guard) = guard else { return Ok(None) };
            guard.release().await?;
            Ok(Some(took))
        })?;
        match took {
            Some(took) if waits => times.push(took),
            Some(_) => {}
            None => busy += 1.0,
        }
    }
    keeper.kill9();
    drop(locks);
    end(runtime);
    let most = quantile(&mut times, 1.0);
    let p50 = quantile(&mut times, 0.5);
    Ok([("p50", p50), ("most", most), ("busy", busy), ("tries", tries as f64)].into())
}

pub(super) const KEEPER: &str = "linger-keeper";

pub(super) fn keep(io: &mut ChildIo) {
    child::play(io, |io, order: KeeperOrder| {
        let runtime = runtime()?;
        let url = order.url;
        let peer = on_worker(&runtime, async move {
            let peer = Lingering::open(&url, LONG).await?;
            peer.warm_up().await?;
            Ok(peer)
        })?;
        for _ in 0..order.rounds {
            io.hear();
            let own = peer.clone();
            on_worker(&runtime, async move {
                for _ in 0..USES {
                    own.release(own.acquire("linger").await?).await?;
                }
                Ok(())
            })?;
            io.say("idle");
        }
        io.hear();
        Ok(())
    });
}

/// How long a round trip of the processes of [`APART`] takes beyond the machine's own.
const ROUND_TRIP: Duration = Duration::from_millis(1);

const PROCESSES: usize = 8;
const KEYS: usize = 64;

pub(super) const APART: Work = Work {
    id: "linger-processes",
    title: "64 keys of 8 processes, a round trip of 1 ms",
    what: "Each of 8 processes has 8 tasks. Each task takes and releases its lock, and one time \
           in 20 any of the 64 locks. A round trip to the server takes 1 ms.",
    metrics: &[Metric { id: "rate", title: "pairs", unit: Unit::PerSecond }],
    peers: &[PeerId::Lingering, PeerId::Ours],
    need: Some(Need::Waiting),
    rounds: (5, 3),
    goals: &[],
    measure: apart,
};

#[derive(Serialize, Deserialize)]
struct ApartOrder {
    peer: PeerId,
    url: String,
    number: usize,
    millis: u64,
}

fn apart(peer: PeerId, scene: &Scene<'_>) -> Result<Sample> {
    let time = scene.lasting(2_000, 1_000);
    let path = DelayLine::to(scene.server.port(), ROUND_TRIP / 2)?;
    let mut children = Vec::new();
    for number in 0..PROCESSES {
        let (url, millis) = (path.url(), u64::try_from(time.as_millis())?);
        children.push(child::start(APART_ROLE, &ApartOrder { peer, url, number, millis })?);
    }
    for process in &mut children {
        process.expect("ready");
    }
    for process in &mut children {
        process.tell("go");
    }
    let mut pairs = 0.0;
    for process in &mut children {
        pairs += child::answer::<f64>(process, "pairs")?;
    }
    children.iter_mut().for_each(testbed::Child::kill9);
    ensure!(pairs > 0.0, "no caller was served");
    Ok([("rate", pairs / time.as_secs_f64())].into())
}

pub(super) const APART_ROLE: &str = "linger-processes";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: ApartOrder| with_peer!(order.peer, P => share::<P>(io, &order)));
}

fn share<P: Peer>(io: &mut ChildIo, order: &ApartOrder) -> Result<()> {
    let runtime = runtime()?;
    let url = order.url.clone();
    let peer = on_worker(&runtime, async move { P::open(&url, LONG).await })?;
    io.say("ready");
    io.hear();
    let time = Duration::from_millis(order.millis);
    let own = KEYS / PROCESSES;
    let tasks: Vec<_> = (0..own)
        .map(|task| runtime.spawn(mostly_own(peer.clone(), order.number * own + task, time)))
        .collect();
    let mut pairs = 0.0;
    for task in tasks {
        pairs += runtime.block_on(task)??;
    }
    io.say(&format!("pairs {pairs}"));
    // The parent ends this process when all have reported: a process that keeps a lease must not
    // end early.
    io.hear();
    end(runtime);
    Ok(())
}

async fn mostly_own<P: Peer>(peer: P, own: usize, time: Duration) -> Result<f64> {
    let (start, mut pairs, mut number) = (Instant::now(), 0.0, own);
    while start.elapsed() < time {
        // A cheap random number generator.
        number =
            number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = if (number >> 33) % 20 == 0 { (number >> 40) % KEYS } else { own };
        let guard = peer.acquire(&format!("linger:{key}")).await?;
        peer.release(guard).await?;
        pairs += 1.0;
    }
    Ok(pairs)
}
