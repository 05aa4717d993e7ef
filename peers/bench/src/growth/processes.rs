use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use testbed::{Child, ChildIo};

use super::{Axis, OF_A_LOCK, Point};
use crate::contest::{Outcome, fight};
use crate::peer::{Ours, Peer};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::{child, clock};

pub(super) const AXIS: Axis = Axis {
    id: "growth-processes",
    title: "Processes that want one lock",
    what: "Each has one task that takes and gives back the same lock, over and over.",
    titles: OF_A_LOCK,
    counts: &[1, 3, 10, 30, 100, 200],
    measure,
};

/// Starting that many processes takes a while on a small machine.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Serialize, Deserialize)]
struct GrowthOrder {
    url: String,
    millis: u64,
}

#[derive(Serialize, Deserialize)]
struct Spent {
    outcome: Outcome,
    computed: f64,
}

fn measure(scene: &Scene<'_>, processes: usize) -> Result<Point> {
    let millis = u64::try_from(scene.lasting(5_000, 2_000).as_millis())?;
    let order = GrowthOrder { url: scene.server.url(), millis };
    let mut children =
        (0..processes).map(|_| child::start(ROLE, &order)).collect::<Result<Vec<Child>>>()?;
    for process in &mut children {
        process.expect_within(PATIENCE, "ready");
    }
    let before = Scene::commands(scene.server);
    children.iter_mut().for_each(|process| process.tell("go"));
    let (mut locks, mut computed, mut worst) = (0.0, 0.0, 0.0_f64);
    for process in &mut children {
        let spent: Spent = serde_json::from_str(&process.expect_within(PATIENCE, "spent"))?;
        locks += spent.outcome.served.iter().sum::<u64>() as f64;
        computed += spent.computed;
        worst = worst.max(spent.outcome.worst);
    }
    let commands = (Scene::commands(scene.server) - before) / locks;
    children.iter_mut().for_each(Child::kill9);
    Ok(Point { commands, client: computed / locks, worst })
}

pub(super) const ROLE: &str = "growth-processes";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: GrowthOrder| {
        let runtime = runtime()?;
        let url = order.url;
        let peer = on_worker(&runtime, async move { Ours::open(&url, LONG).await })?;
        io.say("ready");
        io.hear();
        let before = clock::computed();
        let outcome = fight(&runtime, &peer, "growth", 1, Duration::from_millis(order.millis))?;
        let computed = (clock::computed() - before).as_secs_f64();
        io.say(&format!("spent {}", serde_json::to_string(&Spent { outcome, computed })?));
        // The parent ends this process when all have reported: a process that others wait for must
        // not end early.
        io.hear();
        end(runtime);
        Ok(())
    });
}
