//! More waiters of one process for one lock of a cluster than queue at its node, while their slot moves or
//! its node is replaced.

#[path = "../support/line.rs"]
mod line;

use redis_locks::{Guard, LockRequest, Locks};
use testbed::{Cluster, eventually};

use self::line::*;
use crate::arena::{PATIENCE, PLACE, ms};
use crate::cluster::{keys, wire};

/// Two managers and a key, all of whose permits the first one has while many tasks of the second wait.
struct Scene {
    cluster: Cluster,
    key: String,
    held: Vec<Guard>,
    line: Line,
    managers: [Locks; 2],
}

fn permit(locks: &Locks, key: &str) -> LockRequest {
    locks.permit(key, LIMIT).ttl(ms(30_000)).wait(PATIENCE)
}

impl Scene {
    async fn set() -> Self {
        let cluster = Cluster::start();
        let key = keys(&cluster).remove(0);
        let open = || Locks::builder().cluster(cluster.urls()).open().unwrap();
        let managers = [open(), open()];
        for locks in &managers {
            permit(locks, &key).acquire().await.unwrap().release().await.unwrap();
        }
        let channels = || -> Vec<String> {
            cluster.owner_of(&wire(&key)).server().run("PUBSUB SHARDCHANNELS")
        };
        eventually(PATIENCE, "messages reach them", || channels().len() == managers.len());
        let held = take_all(permit(&managers[0], &key)).await;
        let line = Line::of((0..WAITING).map(|_| permit(&managers[1], &key))).await;
        let scene = Self { cluster, key, held, line, managers };
        scene.until_all_have_looked();
        scene
    }

    fn slot(&self) -> u16 {
        self.cluster.slot_of(&wire(&self.key))
    }

    /// At the node that has the slot now.
    #[track_caller]
    fn until_all_have_looked(&self) {
        let waiters = format!("lock:{{{}}}:~w", wire(&self.key));
        until_all_have_looked(self.cluster.owner(self.slot()).server(), &waiters);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g5_many_waiters_keep_their_places_and_their_order_when_their_slot_moves() {
    let scene = Scene::set().await;
    let from = scene.cluster.owner(scene.slot());
    let to = scene.cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
    scene.cluster.move_slots(scene.slot()..=scene.slot(), to);
    scene.until_all_have_looked();
    let Scene { cluster, held, line, managers, .. } = scene;
    free(held).await;
    assert!(line.all_served(ms(6_000)).await.is_in_order());
    drop(managers);
    cluster.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g3_many_waiters_are_served_by_the_successor_of_a_node_that_died() {
    let Scene { cluster, key, held, line, managers } = Scene::set().await;
    let (victim, slot) = (cluster.owner_of(&wire(&key)), cluster.slot_of(&wire(&key)));
    cluster.until_replicated(victim);
    victim.server().kill9();
    cluster.until_replaced(victim, slot);
    for guard in held {
        // The holder may not have heard of the successor yet.
        guard.release().await.unwrap();
    }
    line.all_served(ms(6_000)).await;
    drop(managers);
    eventually(PATIENCE, "the queues are gone", || {
        !cluster.keys().iter().any(|key| key.ends_with(":~q"))
    });
    cluster.assert_clean();
}
