//! From the release in one process to the lock in another.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::StreamExt;
use redis::{
    AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, Script,
};
use serde::{Deserialize, Serialize};
use testbed::{Child, ChildIo};
use tokio::sync::mpsc;

use super::Work;
use crate::child;
use crate::clock;
use crate::goal::{Bound, Goal};
use crate::peer::{Need, Peer, PeerId, with_peer};
use crate::sample::{Metric, Sample, Unit, quantile};
use crate::scene::{LONG, Scene, end, on_worker, runtime};
use crate::server_load::ServerLoad;

const MEDIAN: Metric = Metric { id: "p50", title: "median", unit: Unit::Seconds };
const LONGEST: Metric = Metric { id: "most", title: "longest", unit: Unit::Seconds };
/// With the wait before it, in which some libraries ask again and again.
const SERVER: Metric =
    Metric { id: "server", title: "the server computes from one to the next", unit: Unit::Seconds };

/// How many are measured.
fn times(scene: &Scene<'_>) -> usize {
    scene.times(25, 12)
}

pub(super) const WORK: Work = Work {
    id: "hand-over",
    title: "Hand-over to a waiter in another process",
    what: "From the call of release to the moment when a task that waits in another process has \
           the lock. The push floor is one script that sets a key and publishes, to a subscriber.",
    metrics: &[MEDIAN, LONGEST, SERVER],
    peers: &[
        PeerId::Ours,
        PeerId::Floor,
        PeerId::Bare,
        PeerId::Rslock,
        PeerId::Rlock,
        PeerId::Redlock,
        PeerId::DistributedLock,
    ],
    need: Some(Need::Waiting),
    rounds: (5, 3),
    goals: &[Goal::ours("p50", Bound::AtMostTimes(2.2, &[PeerId::Floor]))],
    measure: |peer, scene| {
        let server = ServerLoad::begin(scene.server)?;
        let mut sample = measure(peer, scene, scene.server.url(), false)?;
        sample.insert("server", server.seconds(scene.server)? / times(scene) as f64);
        Ok(sample)
    },
};

pub(super) const ON_CLUSTER: Work = Work {
    id: "cluster-hand-over",
    title: "Hand-over on three nodes to a waiter in another process",
    what: "The same on a cluster of three nodes. The push floor is one script that sets a key and \
           publishes by `SPUBLISH`, to a subscriber at the same node.",
    metrics: &[MEDIAN, LONGEST],
    peers: &[PeerId::Ours, PeerId::Floor, PeerId::BareCluster],
    need: Some(Need::Waiting),
    rounds: (5, 3),
    goals: &[Goal::ours("p50", Bound::AtMostTimes(2.4, &[PeerId::Floor]))],
    measure: |peer, scene| {
        let url = match peer {
            PeerId::Floor => scene.cluster().owner_of(FLOOR).url(),
            _ => scene.cluster_url(),
        };
        measure(peer, scene, url, true)
    },
};

/// The key and the channel of the push floor.
const FLOOR: &str = "floor";

#[derive(Serialize, Deserialize)]
struct HandOverOrder {
    peer: PeerId,
    url: String,
    sharded: bool,
    times: usize,
}

/// The push floor alone, for works that are compared with it.
pub(super) fn floor(scene: &Scene<'_>) -> Result<Sample> {
    measure(PeerId::Floor, scene, scene.server.url(), false)
}

fn measure(peer: PeerId, scene: &Scene<'_>, url: String, sharded: bool) -> Result<Sample> {
    let order = HandOverOrder { peer, url, sharded, times: times(scene) };
    let mut waiter = child::start(ROLE, &order)?;
    let mut times = match peer {
        PeerId::Floor => publish(&order, &mut waiter)?,
        peer => with_peer!(peer, P => release::<P>(&order, &mut waiter)?),
    };
    waiter.kill9();
    Ok([("p50", quantile(&mut times, 0.5)), ("most", quantile(&mut times, 1.0))].into())
}

/// How long the waiter waits before the release: varied, so that it is not in step with any
/// library's polling.
fn pause(number: usize) -> Duration {
    Duration::from_millis(20 + (number as u64 * 37) % 100)
}

fn release<P: Peer>(order: &HandOverOrder, waiter: &mut Child) -> Result<Vec<Duration>> {
    let runtime = runtime()?;
    let url = order.url.clone();
    let peer = on_worker(&runtime, async move { open_warm::<P>(&url).await })?;
    let mut times = Vec::with_capacity(order.times);
    for number in 0..order.times {
        let own = peer.clone();
        let guard = on_worker(&runtime, async move { own.acquire("hand-over").await })?;
        waiter.tell("wait");
        waiter.expect("waiting");
        std::thread::sleep(pause(number));
        let own = peer.clone();
        let released = on_worker(&runtime, async move {
            let now = clock::now();
            own.release(guard).await?;
            Ok(now)
        })?;
        let got: Duration = child::answer(waiter, "got")?;
        times.push(got.saturating_sub(released));
    }
    drop(peer);
    end(runtime);
    Ok(times)
}

async fn open_warm<P: Peer>(url: &str) -> Result<P> {
    let peer = P::open(url, LONG).await?;
    peer.warm_up().await?;
    Ok(peer)
}

fn publish(order: &HandOverOrder, waiter: &mut Child) -> Result<Vec<Duration>> {
    let runtime = runtime()?;
    let client = redis::Client::open(order.url.as_str())?;
    let connection =
        on_worker(&runtime, async move { Ok(client.get_multiplexed_async_connection().await?) })?;
    waiter.expect("waiting");
    let mut times = Vec::with_capacity(order.times);
    for number in 0..order.times {
        std::thread::sleep(pause(number));
        let mut connection = connection.clone();
        let publish = if order.sharded { "SPUBLISH" } else { "PUBLISH" };
        let sent = on_worker(&runtime, async move {
            let script = Script::new(
                "redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000) \
                 return redis.call(ARGV[2], KEYS[1], ARGV[1])",
            );
            let now = clock::now();
            let mut call = script.key(FLOOR);
            call.arg("grant").arg(publish);
            let heard: u32 = call.invoke_async(&mut connection).await?;
            if heard != 1 {
                bail!("{heard} subscribers heard it");
            }
            Ok(now)
        })?;
        let got: Duration = child::answer(waiter, "got")?;
        times.push(got.saturating_sub(sent));
    }
    end(runtime);
    Ok(times)
}

pub(super) const ROLE: &str = "hand-over";

pub(super) fn play(io: &mut ChildIo) {
    child::play(io, |io, order: HandOverOrder| match order.peer {
        PeerId::Floor => subscribe(io, &order),
        peer => with_peer!(peer, P => wait::<P>(io, &order)),
    });
}

fn wait<P: Peer>(io: &mut ChildIo, order: &HandOverOrder) -> Result<()> {
    let runtime = runtime()?;
    let url = order.url.clone();
    let peer = on_worker(&runtime, async move { open_warm::<P>(&url).await })?;
    for _ in 0..order.times {
        io.hear();
        let own = peer.clone();
        let waiting = runtime.spawn(async move {
            let guard = own.acquire("hand-over").await?;
            let now = clock::now();
            own.release(guard).await?;
            anyhow::Ok(now)
        });
        io.say("waiting");
        let got = runtime.block_on(waiting)??;
        io.say(&format!("got {}", serde_json::to_string(&got)?));
    }
    io.hear();
    Ok(())
}

fn subscribe(io: &mut ChildIo, order: &HandOverOrder) -> Result<()> {
    if order.sharded {
        return subscribe_sharded(io, order);
    }
    let runtime = runtime()?;
    let client = redis::Client::open(order.url.as_str())?;
    let mut subscription = on_worker(&runtime, async move {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(FLOOR).await?;
        Ok(subscription)
    })?;
    io.say("waiting");
    for _ in 0..order.times {
        let got;
        (subscription, got) = on_worker(&runtime, async move {
            let message = subscription.on_message().next().await;
            let now = clock::now();
            anyhow::ensure!(message.is_some(), "the subscription ended");
            Ok((subscription, now))
        })?;
        io.say(&format!("got {}", serde_json::to_string(&got)?));
    }
    io.hear();
    Ok(())
}

/// Over the protocol in which messages come beside answers: the driver has no other way to sharded
/// channels.
fn subscribe_sharded(io: &mut ChildIo, order: &HandOverOrder) -> Result<()> {
    let runtime = runtime()?;
    let info = order.url.as_str().into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = redis::Client::open(info.set_redis_settings(settings))?;
    let (sender, mut pushes) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(sender);
    let _connection = on_worker(&runtime, async move {
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut command = redis::cmd("SSUBSCRIBE");
        connection.send_packed_command(command.arg(FLOOR)).await?.extract_error()?;
        Ok(connection)
    })?;
    io.say("waiting");
    for _ in 0..order.times {
        let got;
        (pushes, got) = on_worker(&runtime, async move {
            loop {
                let push: PushInfo = pushes.recv().await.context("the subscription ended")?;
                if push.kind == PushKind::SMessage {
                    return Ok((pushes, clock::now()));
                }
            }
        })?;
        io.say(&format!("got {}", serde_json::to_string(&got)?));
    }
    io.hear();
    Ok(())
}
