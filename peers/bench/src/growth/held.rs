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
    what: "The locks have a lease of 15 s and are renewed. After that is measured, a task takes \
           and releases another lock for a while, 100 times a second.",
    titles: Titles {
        commands: "commands for a held lock in a second",
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
    computed: f64,
    seconds: f64,
}

fn measure(scene: &Scene<'_>, locks: usize) -> Result<Point> {
    let time = scene.lasting(6_000, 5_500);
    let (url, millis) = (scene.server.url(), u64::try_from(time.as_millis())?);
    let mut keeper = child::start(ROLE, &HoldingOrder { url, locks, millis })?;
    keeper.expect_within(PATIENCE, "holding");
    let before = Scene::commands(scene.server);
    let kept: Kept = serde_json::from_str(&keeper.expect_within(time + PATIENCE, "kept"))?;
    let commands = Scene::commands(scene.server) - before;
    keeper.tell("go on");
    let worst = child::answer::<f64>(&mut keeper, "worst")?;
    keeper.kill9();
    let each = locks as f64 * kept.seconds;
    Ok(Point { commands: commands / each, client: kept.computed / each, worst })
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
        let (start, computed) = (Instant::now(), clock::computed());
        std::thread::sleep(time);
        let computed = (clock::computed() - computed).as_secs_f64();
        let kept = Kept { computed, seconds: start.elapsed().as_secs_f64() };
        io.say(&format!("kept {}", serde_json::to_string(&kept)?));
        io.hear();
        let worst = on_worker(&runtime, async move { beside(&peer, time / 2).await })?;
        io.say(&format!("worst {worst}"));
        io.hear();
        drop(guards);
        end(runtime);
        Ok(())
    });
}

/// The worst wait of a task that takes and gives back a lock beside those that are held.
async fn beside(peer: &Ours, time: Duration) -> Result<f64> {
    let (start, mut worst) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < time {
        sleep(Duration::from_millis(10)).await;
        let asked = Instant::now();
        let guard = peer.acquire("beside").await?;
        worst = worst.max(asked.elapsed());
        peer.release(guard).await?;
    }
    Ok(worst.as_secs_f64())
}
