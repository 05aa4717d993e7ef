//! Locks of several slots whose commands go to their node in one call, while the slots move.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use redis_locks::Locks;
use testbed::{Cluster, Node, ServerBinary, eventually};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::arena::{PATIENCE, ms, take};
use crate::cluster::wire;
use crate::is_held;

const SLOTS: usize = 6;

/// Locks in each of the slots.
const EACH: usize = 4;

fn binaries() -> Vec<ServerBinary> {
    [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten().collect()
}

/// Names that share a slot each, all of them at this node.
fn tags(cluster: &Cluster, node: &Node) -> Vec<String> {
    let tag = |number| cluster.name_at(node, &format!("t{number}x"), |name| format!("{{{name}}}"));
    (0..SLOTS).map(tag).collect()
}

/// Tasks that take and give back a lock of their own each, all the time.
struct Busy {
    runtime: Runtime,
    tasks: Vec<JoinHandle<()>>,
    pairs: Arc<AtomicUsize>,
    is_done: Arc<AtomicBool>,
}

impl Busy {
    fn start(locks: &Locks, keys: impl Iterator<Item = String>) -> Self {
        let runtime = Runtime::new().unwrap();
        let (pairs, is_done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let task = |key: String| {
            let (locks, pairs, is_done) = (locks.clone(), Arc::clone(&pairs), Arc::clone(&is_done));
            runtime.spawn(async move {
                while !is_done.load(SeqCst) {
                    let guard = locks.mutex(&key).acquire().await.unwrap();
                    guard.release().await.unwrap();
                    pairs.fetch_add(1, SeqCst);
                }
            })
        };
        let tasks = keys.map(task).collect();
        Self { runtime, tasks, pairs, is_done }
    }

    #[track_caller]
    fn goes_on(&self, when: &str) {
        let before = self.pairs.load(SeqCst);
        eventually(PATIENCE, &format!("locks are taken and given back {when}"), || {
            self.pairs.load(SeqCst) > before + 200
        });
    }

    /// How many pairs it were. Each of them has succeeded.
    fn finish(self) -> usize {
        self.is_done.store(true, SeqCst);
        for task in self.tasks {
            self.runtime.block_on(task).unwrap();
        }
        self.pairs.load(SeqCst)
    }
}

#[test]
fn g2_g10_locks_of_several_slots_are_released_and_kept_together_while_these_move() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary.clone()).replicas(0).start();
        // Of the commands that meet a slot on its way some are sent several times: on a busy machine that takes
        // seconds, and is no outage.
        let locks = Locks::builder().cluster(cluster.urls()).ttl(ms(2_000)).outage(PATIENCE);
        let locks = locks.open().unwrap();
        let [from, to, _] = cluster.primaries()[..] else { panic!("three primaries") };
        let tags = tags(&cluster, from);
        let name = |tag: &str, what| format!("{{{tag}}}{what}");
        let held: Vec<_> = tags.iter().map(|tag| take(locks.mutex(name(tag, 99)))).collect();
        let keys = tags.iter().flat_map(|tag| (0..EACH).map(move |number| name(tag, number)));
        let busy = Busy::start(&locks, keys);
        for tag in &tags {
            let slot = cluster.slot_of(&wire(&name(tag, 0)));
            let moving = cluster.begin_move(slot, to);
            busy.goes_on("while their slot begins to move");
            moving.move_key(&wire(&name(tag, 99)));
            moving.keys_left().iter().skip(1).for_each(|key| moving.move_key(key));
            busy.goes_on("while their slot is half moved");
            moving.finish();
            busy.goes_on("where their slot has moved to");
        }
        assert!(held.iter().all(is_held), "those that are held are kept");
        busy.finish();
        drop((held, locks));
        cluster.assert_clean();
        let left: Vec<_> = cluster.keys().into_iter().filter(|key| !key.contains(":~")).collect();
        assert!(left.is_empty(), "no lock is left at any node: {left:?}");
    }
}

#[test]
fn what_is_released_together_is_gone_at_the_replicas_too() {
    let cluster = Cluster::builder().primaries(3).replicas(1).start();
    let locks = Locks::builder().cluster(cluster.urls()).open().unwrap();
    let busy = Busy::start(&locks, (0..32).map(|number| format!("job{number}")));
    busy.goes_on("at once");
    busy.finish();
    for primary in cluster.primaries() {
        cluster.until_replicated(primary);
        let left = cluster.replica_of(primary).server().keys();
        assert!(left.iter().all(|key| !key.starts_with("lock:job")), "{left:?}");
    }
    cluster.assert_clean();
}
