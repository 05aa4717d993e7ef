//! A primary that packets don't reach any more, in silence: no connection is refused or closed.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, Locks, LocksBuilder};
use testbed::{Cluster, Island, Node, Proxy, Sentinel, Turns, eventually};

use crate::arena::{PATIENCE, ms, take};
use crate::cluster::{keys, wire};
use crate::is_held;

const TTL: Duration = ms(1_000);

/// A lease that outlives every fail-over here.
const LONG_TTL: Duration = ms(30_000);

/// A primary on an island, its replica and three sentinels elsewhere.
struct Scene {
    island: Island,
    group: Sentinel,
}

impl Scene {
    fn start() -> Result<Self, String> {
        let island = Island::rise()?;
        let group = Sentinel::builder().island(&island).start();
        Ok(Self { island, group })
    }

    fn builder(&self) -> LocksBuilder {
        let builder = Locks::builder().sentinel(self.group.urls(), self.group.name());
        builder.ttl(TTL).command_timeout(ms(1_000)).outage(PATIENCE)
    }

    /// A manager that reaches the island by the second route, and each sentinel of `ways` by its proxy.
    fn aside(&self, builder: LocksBuilder, ways: &[Proxy]) -> Locks {
        let (first, second) = (self.island.address(), self.island.second_address());
        let is_island = move |host: &str| host.parse() == Ok(first);
        let nodes = self.group.sentinels().iter().map(|node| node.address().to_string());
        let ways: HashMap<_, _> = nodes.zip(ways.iter().map(Proxy::port)).collect();
        let map = move |host: &str, port| match ways.get(&format!("{host}:{port}")) {
            Some(&port) => ("127.0.0.1".to_owned(), port),
            None if is_island(host) => (second.to_string(), port),
            None => (host.to_owned(), port),
        };
        builder.address_map(map).open().unwrap()
    }

    /// The server that takes the primary's place.
    fn heir(&self) -> &Node {
        &self.group.servers()[1]
    }

    #[track_caller]
    fn must_be_clean(&self) {
        self.group.primary().server().assert_clean();
    }
}

fn fence(guard: &Guard) -> u64 {
    guard.fence().expect("it was asked for")
}

/// Waits for the lock in a thread.
fn wait_for(locks: &Locks, key: &str) -> Receiver<Guard> {
    let (sender, receiver) = channel();
    let request = locks.mutex(key).fenced().wait(PATIENCE);
    std::thread::spawn(move || {
        // The test may have failed before.
        let _ = sender.send(take(request));
    });
    receiver
}

/// Waits until a guard no longer counts on its lock, which nothing may have lengthened after `cut`.
#[track_caller]
fn ends_by_its_own_clock(guard: &Guard, cut: Instant) {
    let mut end = cut;
    eventually(PATIENCE, "it is lost", || {
        let (now, left) = (Instant::now(), guard.remaining());
        if !left.is_zero() {
            end = now + left;
        }
        left.is_zero()
    });
    assert!(end - cut <= TTL, "it counted on its lock until {:?} after the cut", end - cut);
}

#[test]
fn f8_a_primary_that_goes_silent_for_all_is_replaced_and_its_locks_are_kept_or_lost_in_time() {
    let scene = match Scene::start() {
        Ok(scene) => scene,
        Err(why) => testbed::skip!("{why}"),
    };
    let (one, other) = (scene.builder().open().unwrap(), scene.builder().open().unwrap());
    let short = take(one.mutex("short").fenced());
    let long = take(one.mutex("long").ttl(LONG_TTL));
    let before = fence(&short);
    let next = wait_for(&other, "short");
    scene.group.until_replicated();
    scene.island.cut();
    ends_by_its_own_clock(&short, Instant::now());
    eventually(PATIENCE, "another takes its place", || scene.heir().is_primary());
    let replaced = Instant::now();
    let guard = next.recv_timeout(PATIENCE).expect("who waits is served");
    let served = replaced.elapsed();
    assert!(served < ms(3_000), "after the fail-over: {served:?}");
    assert!(fence(&guard) > before, "{:?} after {before}", guard.fence());
    assert!(matches!(short.blocking_release(), Err(LockError::Lost { .. })));
    // A replica has it, and so has the new primary.
    eventually(PATIENCE, "it is confirmed there", || long.blocking_verify().is_ok());
    assert!(scene.heir().server().exists("lock:long"));
    scene.island.heal();
    guard.blocking_release().unwrap();
    long.blocking_release().unwrap();
    take(one.mutex("short")).blocking_release().unwrap();
    drop((one, other));
    scene.must_be_clean();
}

/// Commands of the one manager arrive and are executed. For the sentinels and all others nothing is
/// wrong.
#[test]
fn f8_a_client_cut_off_from_the_primary_loses_in_time_and_others_get_its_lock() {
    let scene = match Scene::start() {
        Ok(scene) => scene,
        Err(why) => testbed::skip!("{why}"),
    };
    let (one, other) = (scene.aside(scene.builder(), &[]), scene.builder().open().unwrap());
    let held = take(one.mutex("job").fenced());
    take(other.mutex("elsewhere")).blocking_release().unwrap();
    let next = wait_for(&other, "job");
    scene.island.mute_second();
    let cut = Instant::now();
    ends_by_its_own_clock(&held, cut);
    let guard = next.recv_timeout(PATIENCE).expect("who waits is served");
    let served = cut.elapsed();
    assert!(!is_held(&held) || held.remaining().is_zero());
    assert!(served < TTL * 3 + ms(2_000), "a lease that was renewed in vain ends: {served:?}");
    assert!(fence(&guard) > fence(&held), "{:?} after {:?}", guard.fence(), held.fence());
    assert!(scene.group.servers()[0].is_primary(), "nothing is wrong for the sentinels");
    let mut turns = Turns::of("nothing is wrong for others");
    while turns.go_on() {
        let start = Instant::now();
        take(other.mutex("elsewhere")).blocking_release().unwrap();
        turns.must_be_below(ms(900), start.elapsed());
    }
    assert!(held.blocking_release().is_err());
    scene.island.heal();
    guard.blocking_release().unwrap();
    take(one.mutex("job").wait(PATIENCE)).blocking_release().unwrap();
    drop((one, other));
    scene.must_be_clean();
}

/// The scene after a primary is cut off together with one manager.
struct Minority {
    scene: Scene,
    one: Locks,
    other: Locks,
    /// Of the one.
    held: Guard,
}

/// The one and its primary are cut off, and `then` looks at what becomes of them. In the end they are
/// back, and the one has lost what it held.
fn minority(ttl: Duration, replicas: u32, then: impl FnOnce(&Minority)) {
    let scene = match Scene::start() {
        Ok(scene) => scene,
        Err(why) => testbed::skip!("{why}"),
    };
    let ways = scene.group.sentinels().iter().map(|node| node.address().parse().unwrap());
    let ways: Vec<_> = ways.map(Proxy::to_address).collect();
    let urls: Vec<_> = ways.iter().map(Proxy::url).collect();
    let builder = Locks::builder().sentinel(urls, scene.group.name()).ttl(ttl).outage(PATIENCE);
    let one = scene.aside(builder.replicas(replicas).command_timeout(ms(1_000)), &ways);
    let other = scene.builder().open().unwrap();
    let held = take(one.mutex("job").fenced());
    scene.group.until_replicated();
    ways.iter().for_each(Proxy::hole);
    scene.island.cut_first();
    let minority = Minority { scene, one, other, held };
    then(&minority);
    let Minority { scene, one, other, held } = minority;
    ways.iter().for_each(Proxy::pass);
    scene.island.heal();
    eventually(PATIENCE, "it hears of the loss", || !is_held(&held));
    assert!(matches!(held.blocking_release(), Err(LockError::Lost { .. })));
    // It takes the old primary ten seconds to become the replica that some wait for.
    let back = if replicas == 0 { &one } else { &other };
    take(back.mutex("job").wait(PATIENCE)).blocking_release().unwrap();
    drop((one, other));
    scene.must_be_clean();
}

#[test]
fn f8_a_client_cut_off_with_the_old_primary_has_an_older_fence() {
    // The client must not miss a renewal, however slow the machine is.
    minority(ms(4_000), 0, |Minority { scene, one, other, held }| {
        // No replica will ever hear of this one, nor of its fence.
        let alone = take(one.mutex("alone").fenced());
        let next = wait_for(other, "job");
        eventually(PATIENCE, "another takes its place", || scene.heir().is_primary());
        let guard = next.recv_timeout(PATIENCE).expect("who waits is served");
        assert!(fence(&guard) > fence(held), "{:?} after {:?}", guard.fence(), held.fence());
        let second = take(other.mutex("alone").fenced().wait(PATIENCE));
        assert!(fence(&second) > fence(&alone), "{:?} after {:?}", second.fence(), alone.fence());
        assert!(
            is_held(held) && is_held(&alone),
            "those who are cut off with their primary notice nothing"
        );
        guard.blocking_release().unwrap();
        second.blocking_release().unwrap();
    });
}

#[test]
fn f8_a_client_cut_off_with_the_old_primary_that_wants_a_replica_loses_in_time() {
    minority(TTL, 1, |Minority { other, held, .. }| {
        let cut = Instant::now();
        let next = wait_for(other, "job");
        ends_by_its_own_clock(held, cut);
        let guard = next.recv_timeout(PATIENCE).expect("who waits is served");
        assert!(fence(&guard) > fence(held), "{:?} after {:?}", guard.fence(), held.fence());
        guard.blocking_release().unwrap();
    });
}

#[test]
fn g8_a_primary_of_a_cluster_that_goes_silent_for_all_is_replaced_and_costs_the_others_nothing() {
    let island = match Island::rise() {
        Ok(island) => island,
        Err(why) => testbed::skip!("{why}"),
    };
    let cluster = Cluster::builder().island(&island).start();
    let open = || {
        let builder = Locks::builder().cluster(cluster.urls()).ttl(TTL).outage(PATIENCE);
        builder.command_timeout(ms(1_000)).open().unwrap()
    };
    let (one, other) = (open(), open());
    let [key, elsewhere, _] = keys(&cluster).try_into().expect("there are three primaries");
    let (gone, slot) = (&cluster.nodes()[0], cluster.slot_of(&wire(&key)));
    assert_eq!(cluster.owner(slot).id(), gone.id());
    let short = take(one.mutex(&key).fenced());
    let kept = take(one.mutex(&elsewhere).ttl(LONG_TTL));
    let before = fence(&short);
    let next = wait_for(&other, &key);
    cluster.until_replicated(gone);
    island.cut();
    ends_by_its_own_clock(&short, Instant::now());
    let heir = cluster.replica_of(gone);
    eventually(PATIENCE, "another takes its place", || heir.is_primary());
    let guard = next.recv_timeout(PATIENCE).expect("who waits is served");
    assert!(fence(&guard) > before, "{:?} after {before}", guard.fence());
    assert!(matches!(short.blocking_release(), Err(LockError::Lost { .. })));
    assert!(heir.server().exists(&wire(&key)), "the heir has it");
    eventually(PATIENCE, "it can be confirmed", || kept.blocking_verify().is_ok());
    island.heal();
    guard.blocking_release().unwrap();
    kept.blocking_release().unwrap();
    take(one.mutex(&key).wait(PATIENCE)).blocking_release().unwrap();
    drop((one, other));
    cluster.until_ok();
    cluster.assert_clean();
}
