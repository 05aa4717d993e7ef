use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use testbed::ChildIo;
use tokio::time::sleep;

use super::{Axis, Point, Titles};
use crate::peer::{Ours, Peer};
use crate::scene::{Scene, end, on_worker, runtime};
use crate::{child, clock};

/// Renewed several times while it is measured.
const TTL: Duration = Duration::from_secs(15);

const AT_ONCE: usize = 64;

/// How long taking all of them may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) const AXIS: Axis = Axis {
    id: "growth-held",
    title: "Locks that one process holds",
    what: "They have a lease of 15 s and are renewed. Meanwhile a task takes and gives back another \
           lock, 100 times a second.",
    titles: Titles {
        commands: "commands for a held lock in a second, the task's own left out",
        client: "the process computes for a held lock in a second",
        worst: "the task's worst wait",
    },
    counts: &[1, 10, 100, 1_000, 10_000, 100_000],
    measure,
};

#[derive(Serialize, Deserialize)]
struct HoldingOrder {
    url: String,
    locks: usize,
    millis: u64,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    pairs: f64,
    computed: f64,
    worst: f64,
    seconds: f64,
}

fn measure(scene: &Scene<'_>, locks: usize) -> Result<Point> {
    let time = scene.lasting(11_000, 6_000);
    let (url, millis) = (scene.server.url(), u64::try_from(time.as_millis())?);
    let mut keeper = child::start(ROLE, &HoldingOrder { url, locks, millis })?;
    keeper.expect_within(PATIENCE, "holding");
    let before = scene.commands()?;
    let spent: Kept = serde_json::from_str(&keeper.expect_within(time + PATIENCE, "spent"))?;
    let commands = scene.commands()? - before - 2.0 * spent.pairs;
    keeper.kill9();
    let each = locks as f64 * spent.seconds;
    Ok(Point {
        commands: commands.max(0.0) / each,
        client: spent.computed / each,
        worst: spent.worst,
    })
}

pub(super) const ROLE: &str = "growth-held";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: HoldingOrder| {
        let runtime = runtime()?;
        let (url, locks) = (order.url, order.locks);
        let (peer, guards) = on_worker(&runtime, async move {
            let peer = Ours::open(&url, TTL).await?;
            let one = |number| {
                let peer = peer.clone();
                async move { peer.acquire(&format!("held:{number}")).await }
            };
            let held = stream::iter(0..locks).map(one).buffer_unordered(AT_ONCE);
            let guards: Vec<_> = held.try_collect().await?;
            Ok((peer, guards))
        })?;
        io.say("holding");
        let time = Duration::from_millis(order.millis);
        let spent = on_worker(&runtime, async move { beside(&peer, time).await })?;
        io.say(&format!("spent {}", serde_json::to_string(&spent)?));
        io.hear();
        drop(guards);
        end(runtime);
        Ok(())
    });
}

/// Takes and gives back a lock beside those that are held.
async fn beside(peer: &Ours, time: Duration) -> Result<Kept> {
    let (start, computed) = (Instant::now(), clock::computed());
    let (mut pairs, mut worst) = (0.0, Duration::ZERO);
    while start.elapsed() < time {
        sleep(Duration::from_millis(10)).await;
        let asked = Instant::now();
        let guard = peer.acquire("beside").await?;
        worst = worst.max(asked.elapsed());
        peer.release(guard).await?;
        pairs += 1.0;
    }
    Ok(Kept {
        pairs,
        computed: (clock::computed() - computed).as_secs_f64(),
        worst: worst.as_secs_f64(),
        seconds: start.elapsed().as_secs_f64(),
    })
}
