//! Managers that use every kind of lock on a cluster of 3 + 3, while its slots move, its replicas
//! are promoted, and its nodes die and come back.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, Locks};
use testbed::{Cluster, FailOver, eventually};

use crate::arena::{PATIENCE, ms};

const TIME: Duration = ms(20_000);
const LEASE: Duration = ms(30_000);
const SHORT_LEASE: Duration = ms(4_000);
/// Fail-overs are much shorter than this, and a lease that was not released is much longer.
const LONGEST_WAIT: Duration = ms(19_000);
const MANAGERS: usize = 2;
const WORKERS: u64 = 4;
const PERMITS: u64 = 2;

/// What the servers may be made to forget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forgets {
    /// Nothing that they answered.
    Nothing,
    /// The last answers of a primary that was replaced without its help.
    Some,
}

/// A key, and its holders.
struct Key {
    name: String,
    inside: AtomicU64,
    last_fence: AtomicU64,
    fences: Mutex<BTreeSet<u64>>,
}

impl Key {
    fn new(name: String) -> Self {
        let (inside, last_fence) = Default::default();
        Self { name, inside, last_fence, fences: Mutex::default() }
    }
}

/// The keys of each kind.
struct Scene {
    forgets: Forgets,
    mutexes: Vec<Key>,
    shared: Key,
    pool: Key,
    over: AtomicBool,
    holds: AtomicU64,
    lost: AtomicU64,
}

enum News {
    Failed(String),
    /// For a worker: its longest call. For the source of faults: how long it ran.
    Done(Duration),
}

/// Runs a part of it, and reports how it ended: one that fails ends all.
fn play(name: &str, news: &Sender<News>, part: impl FnOnce() -> Duration + Send + 'static) {
    let (name, news) = (name.to_owned(), news.clone());
    thread::spawn(move || {
        let end = match catch_unwind(AssertUnwindSafe(part)) {
            Ok(longest) => News::Done(longest),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into()));
                News::Failed(format!("{name}: {}", text.unwrap_or_default()))
            }
        };
        // The others may have failed before.
        let _ = news.send(end);
    });
}

#[track_caller]
fn next(news: &Receiver<News>, patience: Duration) -> Duration {
    match news.recv_timeout(patience).expect("it comes to an end") {
        News::Done(time) => time,
        News::Failed(why) => panic!("{why}"),
    }
}

/// Numbers that look random: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let count = u64::try_from(of.len()).unwrap();
        &of[usize::try_from(self.below(count)).unwrap()]
    }
}

impl Scene {
    /// Enters what the guard protects, and leaves it.
    fn visit(&self, keys: &[&Key], weight: u64, guard: &Guard) {
        let strict = self.forgets == Forgets::Nothing;
        for key in keys {
            let before = key.inside.fetch_add(weight, SeqCst);
            let room = before + weight <= EXCLUSIVE;
            assert!(room || !strict, "{}: {before} inside and {weight} more", key.name);
            if let Some(fence) = guard.fence() {
                let last = key.last_fence.fetch_max(fence, SeqCst);
                assert!(last < fence || !strict, "{}: {fence} comes after {last}", key.name);
                let is_new = key.fences.lock().unwrap().insert(fence);
                assert!(is_new, "{}: {fence} was given twice", key.name);
            }
        }
        thread::sleep(ms(1));
        for key in keys {
            key.inside.fetch_sub(weight, SeqCst);
        }
        self.holds.fetch_add(1, SeqCst);
    }

    /// One lock of some kind; the longest call.
    fn turn(&self, locks: &Locks, random: &mut Random) -> Duration {
        let kind = random.below(8);
        let (request, keys, weight) = match kind {
            0..3 => {
                let key = random.pick(&self.mutexes);
                (locks.mutex(&*key.name).fenced(), vec![key], EXCLUSIVE)
            }
            3 => (locks.read(&*self.shared.name), vec![&self.shared], 1),
            4 => (locks.write(&*self.shared.name).fenced(), vec![&self.shared], EXCLUSIVE),
            5 | 6 => {
                let weight = EXCLUSIVE / PERMITS;
                let limit = u32::try_from(PERMITS).unwrap();
                (locks.permit(&*self.pool.name, limit), vec![&self.pool], weight)
            }
            _ => {
                let names = self.mutexes.iter().map(|key| &*key.name);
                (locks.all(names).fenced(), self.mutexes.iter().collect(), EXCLUSIVE)
            }
        };
        let start = Instant::now();
        let guard = match request.wait(LONGEST_WAIT).blocking_acquire() {
            Ok(guard) => guard,
            Err(error) => panic!("kind {kind} after {:?}: {error}", start.elapsed()),
        };
        let asked = start.elapsed();
        self.visit(&keys, weight, &guard);
        let start = Instant::now();
        match guard.blocking_release() {
            // A release that is not confirmed in time goes on in the background.
            Ok(()) | Err(LockError::Backend { .. }) => {}
            Err(LockError::Lost { .. }) if self.forgets == Forgets::Some => {
                self.lost.fetch_add(1, SeqCst);
            }
            Err(error) => panic!("kind {kind}: {error}"),
        }
        asked.max(start.elapsed())
    }

    fn work(&self, locks: &Locks, seed: u64) -> Duration {
        let mut random = Random(seed * 0x9E37_79B9 + 1);
        let mut longest = Duration::ZERO;
        while !self.over.load(SeqCst) {
            longest = longest.max(self.turn(locks, &mut random));
        }
        longest
    }
}

/// How much of a key one has who is alone there. A reader has one part.
const EXCLUSIVE: u64 = 1_000;

/// Does one thing to the cluster, after which it is well again.
fn strike(cluster: &Cluster, scene: &Scene, random: &mut Random) -> String {
    let primaries = cluster.primaries();
    let victim = *random.pick(&primaries);
    match (random.below(4), scene.forgets) {
        (0 | 1, _) => {
            let key = random.pick(&scene.mutexes);
            let slot = cluster.slot_of(&wire(&key.name));
            let from = cluster.owner(slot);
            let to = primaries.iter().find(|node| node.id() != from.id()).unwrap();
            let moving = cluster.begin_move(slot, to);
            if random.below(3) == 0 {
                moving.abandon();
                return format!("slot {slot} was on its way, and came back");
            }
            moving.finish();
            format!("slot {slot} moved")
        }
        (2, Forgets::Nothing) => {
            cluster.until_replicated(victim);
            cluster.fail_over(cluster.replica_of(victim), FailOver::Plain);
            format!("{} was replaced", victim.id())
        }
        (_, Forgets::Nothing) => {
            victim.server().kill9();
            cluster.restart(victim);
            format!("{} was killed, and came back", victim.id())
        }
        (_, Forgets::Some) => {
            cluster.fail_over(cluster.replica_of(victim), FailOver::TakeOver);
            format!("{} was taken over", victim.id())
        }
    }
}

fn wire(name: &str) -> String {
    format!("lock:{name}")
}

/// Strikes for some time, and then lets all work in peace for a while.
fn rage(cluster: &Cluster, scene: &Scene) -> Duration {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    eprintln!("seed {seed}");
    let (mut random, start) = (Random(u64::from(seed) + 1), Instant::now());
    while start.elapsed() < TIME {
        let begun = Instant::now();
        let done = strike(cluster, scene, &mut random);
        eprintln!("{:?}: {done}, {:?}", start.elapsed(), begun.elapsed());
        thread::sleep(ms(100 + random.below(400)));
    }
    let before = scene.holds.load(SeqCst);
    eventually(PATIENCE, "all goes on in peace", || scene.holds.load(SeqCst) > before + 50);
    start.elapsed()
}

fn mayhem(forgets: Forgets) {
    // Long enough for a node that was killed to come back as what it was.
    let cluster = Cluster::builder().durable().node_timeout(ms(3_000)).start();
    let cluster = Arc::new(cluster);
    let names = cluster.primaries().into_iter().map(|node| cluster.name_at(node, "job", wire));
    let mutexes = names.map(Key::new).collect();
    let scene = Arc::new(Scene {
        forgets,
        mutexes,
        shared: Key::new("shared".into()),
        pool: Key::new("pool".into()),
        over: AtomicBool::new(false),
        holds: AtomicU64::new(0),
        lost: AtomicU64::new(0),
    });
    let ttl = if forgets == Forgets::Nothing { LEASE } else { SHORT_LEASE };
    let (sender, news) = channel();
    for manager in 0..MANAGERS {
        let locks = Locks::builder().cluster(cluster.urls()).ttl(ttl).outage(LONGEST_WAIT);
        let locks = locks.open().unwrap();
        for worker in 0..WORKERS {
            let (scene, locks) = (Arc::clone(&scene), locks.clone());
            let seed = u64::try_from(manager).unwrap() * WORKERS + worker + 1;
            play("a worker", &sender, move || scene.work(&locks, seed));
        }
    }
    play("the strikes", &sender, {
        let (cluster, scene) = (Arc::clone(&cluster), Arc::clone(&scene));
        move || {
            let time = rage(&cluster, &scene);
            scene.over.store(true, SeqCst);
            time
        }
    });
    drop(sender);
    let mut longest = Duration::ZERO;
    let mut struck = Duration::ZERO;
    for _ in 0..=MANAGERS * usize::try_from(WORKERS).unwrap() {
        let time = next(&news, TIME * 5);
        if time >= TIME { struck = time } else { longest = longest.max(time) }
    }
    let (holds, lost) = (scene.holds.load(SeqCst), scene.lost.load(SeqCst));
    eprintln!("{holds} holds in {struck:?}, {lost} lost; the longest call took {longest:?}");
    assert!(longest < LONGEST_WAIT, "{longest:?}");
    if forgets == Forgets::Some {
        // A lock whose release was lost with a server ends with its lease.
        eventually(ttl + PATIENCE, "every lease has ended", || {
            cluster.keys().iter().all(|key| key.contains(":~"))
        });
    }
    cluster.assert_clean();
}

#[test]
fn g8_g10_nothing_is_lost_while_slots_move_and_primaries_are_replaced_and_killed() {
    mayhem(Forgets::Nothing);
}

/// Locks that a primary grants after its replica has taken over are lost, so that two may be
/// inside; they have different fences then.
#[test]
fn g8_fences_tell_who_is_inside_after_a_replica_took_over_without_asking() {
    mayhem(Forgets::Some);
}
