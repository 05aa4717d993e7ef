//! Processes that all want the same lock.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use testbed::{Child, ChildIo, Server};

use super::Work;
use crate::child;
use crate::contest::{Outcome, fight, spread};
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::server_load::ServerLoad;

const PROCESSES: usize = 4;

pub(super) const WORK: Work = Work {
    id: "hot-processes",
    title: "One hot key, 4 processes with 4 tasks each",
    what: "4 processes of 4 tasks take and give back the same lock, as fast as they can.",
    metrics: METRICS,
    peers: PeerId::WAITING,
    need: Some(Need::Waiting),
    rounds: (5, 3),
    goals: &[Goal::ours("spread", Bound::AtMost(2.0))],
    measure: |peer, scene| measure(peer, scene, scene.server.url(), &[scene.server], 4),
};

pub(super) const METRICS: &[Metric] = &[
    Metric { id: "rate", title: "locks", unit: Unit::PerSecond },
    Metric { id: "spread", title: "most served process / least served", unit: Unit::Times },
    Metric { id: "worst", title: "worst wait", unit: Unit::Seconds },
    Metric { id: "server", title: "the server computes for a lock", unit: Unit::Seconds },
    Metric { id: "commands", title: "commands for a lock", unit: Unit::Count },
];

#[derive(Serialize, Deserialize)]
struct HotOrder {
    peer: PeerId,
    url: String,
    tasks: usize,
    millis: u64,
}

/// So many tasks in each of the processes, on these servers.
pub(super) fn measure(
    peer: PeerId,
    scene: &Scene<'_>,
    url: String,
    servers: &[&Server],
    tasks: usize,
) -> Result<Sample> {
    let time = scene.lasting(2_000, 1_000);
    let order = HotOrder { peer, url, tasks, millis: u64::try_from(time.as_millis())? };
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(child::start(ROLE, &order)?);
    }
    for process in &mut children {
        process.expect("ready");
    }
    let begin = |server: &&Server| Ok((ServerLoad::begin(server)?, Scene::commands(server)));
    let before = servers.iter().map(begin).collect::<Result<Vec<_>>>()?;
    for process in &mut children {
        process.tell("go");
    }
    let mut outcomes = Vec::new();
    for process in &mut children {
        outcomes.push(child::answer::<Outcome>(process, "outcome")?);
    }
    let (mut computed, mut commands) = (0.0, 0.0);
    for (server, (load, counted)) in servers.iter().zip(before) {
        computed += load.seconds(server)?;
        commands += Scene::commands(server) - counted;
    }
    children.iter_mut().for_each(Child::kill9);

    let shares: Vec<u64> = outcomes.iter().map(|one| one.served.iter().sum()).collect();
    let all = shares.iter().sum::<u64>() as f64;
    let (rate, server) = (all / time.as_secs_f64(), computed / all);
    let worst = outcomes.iter().map(|one| one.worst).max_by(f64::total_cmp).context("no child")?;
    Ok([
        ("rate", rate),
        ("spread", spread(&shares)),
        ("worst", worst),
        ("server", server),
        ("commands", commands / all),
    ]
    .into())
}

pub(super) const ROLE: &str = "hot-processes";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: HotOrder| with_peer!(order.peer, P => contend::<P>(io, &order)));
}

fn contend<P: Peer>(io: &mut ChildIo, order: &HotOrder) -> Result<()> {
    let runtime = runtime()?;
    let url = order.url.clone();
    let peer = on_worker(&runtime, async move {
        let peer = P::open(&url, LONG).await?;
        peer.warm_up().await?;
        Ok(peer)
    })?;
    io.say("ready");
    io.hear();
    let time = Duration::from_millis(order.millis);
    let outcome = fight(&runtime, &peer, "hot", order.tasks, time)?;
    io.say(&format!("outcome {}", serde_json::to_string(&outcome)?));
    // The parent ends this process when all have reported: a process that others wait for must not
    // end early.
    io.hear();
    end(runtime);
    Ok(())
}
