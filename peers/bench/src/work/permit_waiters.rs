//! Ten thousand tasks of one process that wait for a permit.

use std::time::Duration;

use anyhow::Result;
use redis_lock_core::Locks;
use serde::{Deserialize, Serialize};
use testbed::ChildIo;

use super::Work;
use crate::child;
use crate::goal::{Bound, Goal};
use crate::peer::PeerId;
use crate::sample::{Metric, Sample, Unit};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::server_load::ServerLoad;

const WAITERS: usize = 10_000;

/// So many are asked for at once while the queue is filled.
const AT_ONCE: usize = 500;

const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const WORK: Work = Work {
    id: "permit-waiters",
    title: "10,000 tasks wait for a permit",
    what: "One process holds the only permit of a lock while 10,000 of its tasks wait for it.",
    metrics: &[Metric { id: "server", title: "of the server's core", unit: Unit::Share }],
    peers: &[PeerId::Ours],
    need: None,
    rounds: (2, 1),
    goals: &[Goal::ours("server", Bound::AtMost(0.02))],
    measure,
};

#[derive(Serialize, Deserialize)]
struct WaitOrder {
    url: String,
}

fn measure(_: PeerId, scene: &Scene<'_>) -> Result<Sample> {
    let mut crowd = child::start(ROLE, &WaitOrder { url: scene.server.url() })?;
    crowd.expect_within(PATIENCE, "waiting");
    // Waiters that have just come do not look together yet.
    std::thread::sleep(Duration::from_secs(4));
    let load = ServerLoad::begin(scene.server)?;
    std::thread::sleep(scene.lasting(20_000, 8_000));
    let server = load.share(scene.server)?;
    crowd.kill9();
    Ok([("server", server)].into())
}

pub(super) const ROLE: &str = "permit_waiters";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: WaitOrder| {
        let runtime = runtime()?;
        let locks = on_worker(&runtime, async move {
            let locks = Locks::builder().url(order.url).ttl(LONG).connect().await?;
            let holder = locks.permit("gpu", 1).acquire().await?;
            for some in 0..WAITERS / AT_ONCE {
                for _ in 0..AT_ONCE {
                    tokio::spawn(locks.permit("gpu", 1).acquire());
                }
                while locks.status("gpu").await?.waiters.len() < (some + 1) * AT_ONCE {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Ok((locks, holder))
        })?;
        io.say("waiting");
        io.hear();
        drop(locks);
        end(runtime);
        Ok(())
    });
}
