//! Locks on clusters of several nodes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, LockRequest, Locks, NodeRole, Topology};
use testbed::{Cluster, FailOver, ServerBinary, Turns, eventually, holds_for, must_be_prompt};

use crate::arena::{NOTIFIED, PATIENCE, Waiting, ms, take};
use crate::{give_back_unless_expired, is_held};

/// The lease of locks that have to be renewed while a slot moves.
const TTL: Duration = ms(1_500);

fn binaries() -> Vec<ServerBinary> {
    [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten().collect()
}

pub(crate) fn wire(key: &str) -> String {
    format!("lock:{key}")
}

fn open(cluster: &Cluster) -> Locks {
    Locks::builder().cluster(cluster.urls()).command_timeout(ms(1_000)).open().unwrap()
}

/// A key at each primary.
pub(crate) fn keys(cluster: &Cluster) -> Vec<String> {
    cluster.primaries().into_iter().map(|node| cluster.name_at(node, "job", wire)).collect()
}

/// Makes a request of some kind.
type Make<'a> = &'a dyn Fn(&Locks, &str) -> LockRequest;

pub(crate) fn release(guard: Guard) {
    guard.blocking_release().unwrap();
}

#[test]
fn g6_every_kind_of_lock_excludes_at_every_node_and_over_several() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0).start();
        let url = cluster.urls().join(",").replace("redis://", "");
        let one = Locks::open(format!("redis-cluster://{url}")).unwrap();
        let other = open(&cluster);
        let keys = keys(&cluster);
        let each: [Make<'_>; 5] = [
            &|locks, key| locks.mutex(key),
            &|locks, key| locks.write(format!("{key}w")),
            &|locks, key| locks.permit(format!("{key}p"), 1),
            &|locks, key| locks.mutex(format!("{key}f")).fenced(),
            &|locks, key| locks.all(keys.iter().map(|all| format!("{all}{key}"))),
        ];
        for make in each {
            for key in &keys {
                must_be_prompt(NOTIFIED, key, || {
                    let guard = take(make(&one, key));
                    let error = make(&other, key).no_wait().blocking_acquire().map(drop);
                    assert!(error.as_ref().is_err_and(LockError::is_busy), "{error:?}");
                    let waiting = Waiting::start(make(&other, key));
                    eventually(PATIENCE, "it waits", || {
                        cluster.keys().iter().any(|key| key.ends_with(":~q"))
                    });
                    let start = Instant::now();
                    release(guard);
                    waiting.must_have_it();
                    let took = start.elapsed();
                    waiting.finish();
                    took
                });
            }
        }
        let status = one.blocking_status(&keys[0]).unwrap();
        assert_eq!(status.server.topology, Topology::Cluster);
        assert_eq!(status.server.nodes.len(), 3);
        assert!(status.server.nodes.iter().all(|node| node.role == NodeRole::Primary));
        drop((one, other));
        eventually(PATIENCE, "only what ends by itself is left", || {
            cluster.keys().iter().all(|key| !key.ends_with(":~q"))
        });
        cluster.assert_clean();
    }
}

#[test]
fn listing_and_ending_by_force_reach_every_node() {
    let cluster = Cluster::builder().replicas(0).start();
    let (one, other) = (open(&cluster), open(&cluster));
    let keys = keys(&cluster);
    let guards: Vec<_> = keys.iter().map(|key| take(one.mutex(key))).collect();
    let listed: BTreeSet<_> =
        other.blocking_list("job*").map(|status| status.unwrap().key).collect();
    assert_eq!(listed, keys.iter().cloned().collect());
    eventually(PATIENCE, "both listen at every node", || {
        let channels =
            |node: &testbed::Node| -> Vec<String> { node.server().run("PUBSUB SHARDCHANNELS") };
        cluster.primaries().into_iter().all(|node| channels(node).len() == 2)
    });
    for (key, guard) in keys.iter().zip(&guards) {
        assert!(other.blocking_force_release(key, "by hand").unwrap());
        eventually(ms(900), "the holder learns of its loss before it renews", || !is_held(guard));
    }
    drop(guards);
    cluster.assert_clean();
}

#[test]
fn a_listing_goes_on_where_its_nodes_are_replaced_between_two_pages() {
    let cluster = Cluster::start();
    let locks = Locks::builder().cluster(cluster.urls()).ttl(ms(120_000)).open().unwrap();
    let keys: BTreeSet<_> = (0..3_000).map(|number| format!("job{number}")).collect();
    let guards: Vec<_> = keys.iter().map(|key| take(locks.mutex(key))).collect();
    // Twice, so that some successor comes before and some behind the node that it replaces, by address.
    for _ in 0..2 {
        let mut listing = locks.blocking_list("job*");
        let first = listing.next().expect("there are locks").unwrap().key;
        for primary in cluster.primaries() {
            cluster.fail_over(cluster.replica_of(primary), FailOver::Plain);
        }
        let successors: BTreeSet<_> =
            cluster.primaries().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        eventually(PATIENCE, "the successors are known", || {
            let nodes = locks.blocking_status("job0").unwrap().server.nodes;
            let primaries = nodes.into_iter().filter(|node| node.role == NodeRole::Primary);
            primaries.map(|node| node.address).collect::<BTreeSet<_>>() == successors
        });
        let listed = listing.map(|status| status.unwrap().key).chain([first]).collect();
        let missing: Vec<_> = keys.difference(&listed).collect();
        assert!(missing.is_empty(), "{} of {}: {missing:?}", missing.len(), keys.len());
    }
    drop(guards);
}

#[test]
fn g11_a_waiter_that_subscribes_at_another_node_is_not_dead() {
    let cluster = Cluster::builder().replicas(0).start();
    let (one, other) = (open(&cluster), open(&cluster));
    for key in keys(&cluster) {
        for _ in 0..3 {
            let guard = take(one.mutex(&key));
            let waiting = Waiting::start(other.mutex(&key));
            eventually(PATIENCE, "it is queued", || {
                one.blocking_status(&key).unwrap().waiters.len() == 1
            });
            release(guard);
            // Had it been taken for dead, the first one could take the lock again at once.
            assert!(one.mutex(&key).blocking_try_acquire().unwrap().is_none());
            waiting.must_have_it();
            waiting.finish();
        }
    }
    cluster.assert_clean();
}

/// Half moves the slot of a lock while it is held, and for longer than its lease.
#[test]
fn g2_g9_a_held_lock_outlives_a_slot_that_is_half_moved() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0).start();
        let locks =
            Locks::builder().cluster(cluster.urls()).ttl(TTL).outage(PATIENCE).open().unwrap();
        let key = keys(&cluster).remove(0);
        let slot = cluster.slot_of(&wire(&key));
        let to = cluster.primaries().into_iter().find(|node| node.id() != cluster.owner(slot).id());
        for lock_moves in [false, true] {
            let guard = take(locks.mutex(&key));
            let moving = cluster.begin_move(slot, to.unwrap());
            if lock_moves {
                moving.move_key(&wire(&key));
            }
            let what = format!("it is renewed where its key is (moved: {lock_moves})");
            holds_for(3 * TTL, &what, || is_held(&guard));
            guard.blocking_verify().unwrap();
            release(guard);
            let left = moving.keys_left();
            assert!(!left.contains(&wire(&key)), "it is released where its key is: {left:?}");
            moving.abandon();
            eventually(PATIENCE, "it can be acquired again", || {
                locks.mutex(&key).blocking_acquire().is_ok()
            });
        }
        cluster.assert_clean();
    }
}

#[test]
fn g2_g9_locks_that_several_hold_outlive_a_slot_that_is_half_moved() {
    let cluster = Cluster::builder().replicas(0).start();
    let locks = Locks::builder().cluster(cluster.urls()).ttl(TTL).outage(PATIENCE).open().unwrap();
    let key = keys(&cluster).remove(0);
    let slot = cluster.slot_of(&wire(&key));
    let to = cluster.primaries().into_iter().find(|node| node.id() != cluster.owner(slot).id());
    for request in [locks.read(&key), locks.write(&key), locks.permit(&key, 2)] {
        for lock_moves in [false, true] {
            let guard = take(request.clone());
            let moving = cluster.begin_move(slot, to.unwrap());
            // The limit of a permit is elsewhere than its lock.
            let keys = moving.keys_left();
            let go = keys.iter().filter(|left| (**left == wire(&key)) == lock_moves);
            go.for_each(|key| moving.move_key(key));
            let what = format!("it is renewed where its key is (moved: {lock_moves})");
            holds_for(3 * TTL, &what, || is_held(&guard));
            guard.blocking_verify().unwrap();
            release(guard);
            let left = [moving.keys_left(), to.unwrap().server().keys()].concat();
            assert!(!left.contains(&wire(&key)), "it is released where its key is: {left:?}");
            moving.abandon();
        }
    }
    cluster.assert_clean();
}

#[test]
fn g5_g12_who_waits_is_let_in_after_its_slot_and_its_channels_have_moved() {
    let cluster = Cluster::builder().replicas(0).start();
    let (one, other) = (open(&cluster), open(&cluster));
    let key = keys(&cluster).remove(0);
    let slot = cluster.slot_of(&wire(&key));
    let to = cluster.primaries().into_iter().find(|node| node.id() != cluster.owner(slot).id());
    let to = to.unwrap();
    let guard = take(one.mutex(&key));
    let waiting = Waiting::start(other.mutex(&key));
    eventually(PATIENCE, "it waits", || one.blocking_status(&key).unwrap().waiters.len() == 1);
    // The slot of the channel first, so that its listener has to look for another one.
    let channels = || -> Vec<String> { cluster.owner(slot).server().run("PUBSUB SHARDCHANNELS") };
    eventually(PATIENCE, "both listen", || channels().len() == 2);
    let channel = cluster.slot_of(&channels()[0]);
    cluster.move_slots(channel..=channel, to);
    waiting.must_wait();
    cluster.move_slots(slot..=slot, to);
    waiting.must_wait();
    assert!(is_held(&guard));
    let start = Instant::now();
    release(guard);
    waiting.must_have_it();
    assert!(start.elapsed() < ms(1_500), "within the interval of looks: {:?}", start.elapsed());
    waiting.finish();
    // Both places work as before.
    for key in keys(&cluster) {
        let guard = take(one.mutex(&key));
        let waiting = Waiting::start(other.mutex(&key));
        eventually(PATIENCE, "it waits", || one.blocking_status(&key).unwrap().waiters.len() == 1);
        release(guard);
        waiting.must_have_it();
        waiting.finish();
    }
    cluster.assert_clean();
}

#[test]
fn g5_who_waits_gets_messages_from_the_node_to_which_its_place_in_the_queue_has_moved() {
    let cluster = Cluster::builder().replicas(0).start();
    let (one, other) = (open(&cluster), open(&cluster));
    let key = keys(&cluster).remove(0);
    let slot = cluster.slot_of(&wire(&key));
    let served: Vec<_> = (0..5)
        .map(|_| {
            let from = cluster.owner(slot);
            let to = cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
            let guard = take(one.mutex(&key));
            let waiting = Waiting::start(other.mutex(&key));
            eventually(PATIENCE, "it waits", || {
                one.blocking_status(&key).unwrap().waiters.len() == 1
            });
            cluster.move_slots(slot..=slot, to);
            let start = Instant::now();
            release(guard);
            waiting.must_have_it();
            let served = start.elapsed();
            waiting.finish();
            served
        })
        .collect();
    // Those that look by themselves do so after 750 ms.
    let notified = served.iter().filter(|served| **served < NOTIFIED).count();
    assert!(notified >= 3, "{served:?}");
    cluster.assert_clean();
}

#[test]
fn g3_g8_g15_a_dead_primary_costs_only_a_wait_and_no_lock_of_the_others() {
    let cluster = Cluster::start();
    let locks = Locks::builder().cluster(cluster.urls()).ttl(ms(15_000)).open().unwrap();
    let keys = keys(&cluster);
    let guards: Vec<_> = keys.iter().map(|key| take(locks.mutex(key))).collect();
    let victim = cluster.owner_of(&wire(&keys[0]));
    let slot = cluster.slot_of(&wire(&keys[0]));
    cluster.until_replicated(victim);
    victim.server().kill9();
    cluster.until_replaced(victim, slot);
    eventually(PATIENCE, "the lock is released at the successor", || {
        locks.blocking_status(&keys[0]).is_ok()
    });
    for guard in guards {
        assert!(is_held(&guard));
        guard.blocking_verify().unwrap();
        release(guard);
    }
    let next = locks.mutex(&keys[0]).wait(PATIENCE).blocking_acquire().unwrap();
    release(next);
    cluster.assert_clean();
}

#[test]
fn g4_g14_a_node_that_swallows_everything_delays_only_its_own_locks() {
    let cluster = Cluster::builder().replicas(0).proxied().start();
    let locks = open(&cluster);
    let keys = keys(&cluster);
    for key in &keys {
        release(take(locks.mutex(key)));
    }
    let sick = cluster.owner_of(&wire(&keys[0]));
    sick.proxy().hole();
    let stuck = std::thread::spawn({
        let (locks, key) = (locks.clone(), keys[0].clone());
        move || locks.mutex(key).blocking_acquire().map(release).is_ok()
    });
    // Whatever waits for the sick node does so for its time limit of a second.
    let mut turns = Turns::of("the others are not delayed");
    while turns.go_on() {
        let (start, mut slowest) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < ms(2_000) {
            for key in &keys[1..] {
                let start = Instant::now();
                release(take(locks.mutex(key)));
                slowest = slowest.max(start.elapsed());
            }
        }
        turns.must_be_below(ms(900), slowest);
    }
    sick.proxy().pass();
    assert!(stuck.join().unwrap(), "it goes on when the node does");
    cluster.assert_clean();
}

#[test]
fn g13_a_primary_that_wakes_after_it_was_replaced_starts_and_extends_nothing() {
    let cluster = Cluster::start();
    let (one, other) = (
        Locks::builder().cluster(cluster.urls()).ttl(ms(2_500)).open().unwrap(),
        Locks::builder().cluster(cluster.urls()).ttl(ms(2_500)).open().unwrap(),
    );
    let key = keys(&cluster).remove(0);
    let slot = cluster.slot_of(&wire(&key));
    let frozen = cluster.owner(slot);
    let held = take(one.mutex(&key));
    let name = cluster.name_at(frozen, "late", wire);
    let heard = cluster.name_at(frozen, "heard", wire);
    cluster.until_replicated(frozen);
    frozen.server().freeze();
    // A renewal and an acquisition are on their way to it.
    let late = std::thread::spawn({
        let locks = one.clone();
        move || take(locks.mutex(&name).wait(PATIENCE))
    });
    cluster.until_replaced(frozen, slot);
    // Until it has learned which server is the primary now, it can only use the old one.
    release(take(one.mutex(&heard).wait(PATIENCE)));
    frozen.server().thaw();
    release(late.join().unwrap());
    // The present holder is the only one that relies on it.
    let next = other.mutex(&key).wait(PATIENCE);
    give_back_unless_expired(held);
    release(next.blocking_acquire().unwrap());
    eventually(PATIENCE, "it follows", || !frozen.is_primary());
    cluster.assert_clean();
}

#[test]
fn g10_locks_are_kept_and_passed_on_while_slots_move_to_and_fro() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0).start();
        let (one, other) = (open(&cluster), open(&cluster));
        let key = keys(&cluster).remove(0);
        let slot = cluster.slot_of(&wire(&key));
        let count = std::sync::atomic::AtomicU32::new(0);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for locks in [&one, &other] {
                let (count, done, key) = (&count, &done, &key);
                scope.spawn(move || {
                    let mut last = Instant::now();
                    let mut worst = Duration::ZERO;
                    while !done.load(SeqCst) {
                        let guard = take(locks.mutex(key));
                        assert_eq!(count.fetch_add(1, SeqCst) % 2, 0, "two hold it");
                        count.fetch_add(1, SeqCst);
                        release(guard);
                        worst = worst.max(last.elapsed());
                        last = Instant::now();
                    }
                    assert!(worst < ms(3_000), "no caller waits for long: {worst:?}");
                });
            }
            let start = Instant::now();
            let mut moves = 0;
            while start.elapsed() < ms(4_000) {
                let from = cluster.owner(slot);
                let to =
                    cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
                cluster.move_slots(slot..=slot, to);
                moves += 1;
            }
            done.store(true, SeqCst);
            assert!(moves > 1, "it was moved: {moves}");
        });
        assert!(count.load(SeqCst) > 20, "{count:?}");
        cluster.assert_clean();
    }
}

#[test]
fn a_map_of_addresses_leads_to_nodes_that_announce_what_cannot_be_reached() {
    let cluster = Cluster::builder().replicas(0).proxied().start();
    // The addresses that the nodes announce lead nowhere.
    let announced: Vec<_> = cluster.nodes().iter().map(|node| node.port()).collect();
    let reached: Vec<_> = cluster.nodes().iter().map(|node| node.server().port()).collect();
    for node in cluster.nodes() {
        node.proxy().refuse();
        node.proxy().kill_all();
    }
    let seed = cluster.nodes()[0].server().url();
    let map = move |host: &str, port: u16| {
        let at = announced.iter().position(|announced| *announced == port);
        (host.to_owned(), at.map_or(port, |at| reached[at]))
    };
    let locks = Locks::builder().cluster([seed]).address_map(map).open().unwrap();
    for key in keys(&cluster) {
        release(take(locks.mutex(key)));
    }
    cluster.assert_clean();
}

#[test]
fn f5_f14_in_a_cluster_each_lock_counts_when_its_own_primarys_replica_has_it() {
    let cluster = Cluster::start();
    let locks =
        Locks::builder().cluster(cluster.urls()).replicas(1).outage(ms(1_500)).open().unwrap();
    let keys = keys(&cluster);
    for key in &keys {
        release(take(locks.mutex(key)));
    }
    let replica = cluster.replica_of(cluster.owner_of(&wire(&keys[0])));
    replica.server().freeze();
    let error = locks.mutex(&keys[0]).blocking_acquire().map(drop).unwrap_err();
    let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.not_replicated().unwrap().got, 0, "{error}");
    for key in &keys[1..] {
        let start = Instant::now();
        release(take(locks.mutex(key)));
        assert!(start.elapsed() < ms(1_400), "delayed as the other is: {:?}", start.elapsed());
    }
    replica.server().thaw();
    cluster.until_ok();
    release(take(locks.mutex(&keys[0])));
    drop(locks);
    cluster.assert_clean();
}

#[test]
fn the_examples_run_on_a_cluster_with_nothing_changed_but_the_url() {
    let cluster = Cluster::builder().replicas(0).start();
    let url = cluster.urls().join(",").replace("redis://", "");
    let locks = Locks::open(format!("redis-cluster://{url}")).unwrap();
    assert_eq!(crate::plain_lock::demo(&locks).unwrap().len(), 4);
    crate::owned_mutex::demo(&locks).unwrap();
    locks.blocking_shutdown();
    cluster.assert_clean();
}

#[test]
fn g9_held_locks_outlive_a_move_that_is_given_up() {
    let cluster = Cluster::builder().replicas(0).start();
    let locks = open(&cluster);
    let names: Vec<_> = (0..30).map(|number| format!("{{job}}{number}")).collect();
    let guards: Vec<_> = names.iter().map(|name| take(locks.mutex(name))).collect();
    let slot = cluster.slot_of(&wire(&names[0]));
    let to = cluster.primaries().into_iter().find(|node| node.id() != cluster.owner(slot).id());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !done.load(SeqCst) {
                for guard in &guards {
                    guard.blocking_verify().unwrap();
                }
            }
        });
        let moving = cluster.begin_move(slot, to.unwrap());
        for name in &names[..20] {
            moving.move_key(&wire(name));
        }
        moving.abandon();
        done.store(true, SeqCst);
        asking.join().unwrap();
    });
    assert_ne!(cluster.owner(slot).id(), to.unwrap().id());
    guards.into_iter().for_each(release);
    cluster.assert_clean();
}
