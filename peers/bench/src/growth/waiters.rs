use anyhow::Result;

use super::{Axis, OF_A_LOCK, Point};
use crate::clock;
use crate::contest::fight;
use crate::peer::{Ours, Peer};
use crate::scene::{LONG, Scene, end, on_worker, runtime};

pub(super) const AXIS: Axis = Axis {
    id: "growth-waiters",
    title: "Tasks of one process that want one lock",
    what: "Each takes and gives back the same lock, over and over.",
    titles: OF_A_LOCK,
    counts: &[1, 10, 100, 1_000, 10_000],
    measure,
};

fn measure(scene: &Scene<'_>, tasks: usize) -> Result<Point> {
    let runtime = runtime()?;
    let (url, time) = (scene.server.url(), scene.lasting(3_000, 1_000));
    let peer = on_worker(&runtime, async move {
        let peer = Ours::open(&url, LONG).await?;
        peer.warm_up().await?;
        Ok(peer)
    })?;
    let (before, computed) = (Scene::commands(scene.server), clock::computed());
    let outcome = fight(&runtime, &peer, "growth", tasks, time)?;
    let locks = outcome.served.iter().sum::<u64>() as f64;
    let point = Point {
        commands: (Scene::commands(scene.server) - before) / locks,
        client: (clock::computed() - computed).as_secs_f64() / locks,
        worst: outcome.worst,
    };
    drop(peer);
    end(runtime);
    Ok(point)
}
