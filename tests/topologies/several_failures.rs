//! Several failures at a time, and which locks can't be acquired meanwhile.

use std::time::Instant;

use redis_locks::{LockError, Locks};
use testbed::{Cluster, Sentinel, ServerBinary, Turns, eventually};

use crate::arena::{PATIENCE, ms, take};
use crate::{is_held, together};

fn binaries() -> Vec<ServerBinary> {
    [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten().collect()
}

/// The text of a retryable error, which has to come within this many milliseconds.
#[track_caller]
fn is_refused_within(request: redis_locks::LockRequest, millis: u64) -> String {
    let start = Instant::now();
    let error = request.blocking_acquire().map(drop).unwrap_err();
    assert!(start.elapsed() < ms(millis), "{:?}: {error}", start.elapsed());
    let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.is_retryable(), "{error}");
    error.to_string()
}

#[test]
fn g18_a_second_failure_before_the_resync_is_reported_in_time_and_recovered_from() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).durable().start();
        let locks = Locks::builder().cluster(cluster.urls()).outage(ms(2_000)).open().unwrap();
        let well = cluster.owner_of("lock:job");
        let slot = cluster.slot_of("lock:job");
        take(locks.mutex("job")).blocking_release().unwrap();
        cluster.until_replicated(well);
        well.server().kill9();
        let successor = cluster.until_replaced(well, slot);
        successor.server().kill9();
        // No node has the slot any more.
        for request in [locks.mutex("job"), locks.mutex("job").fenced(), locks.write("{job}w")] {
            is_refused_within(request, 8_000);
        }
        successor.server().restart();
        well.server().restart();
        cluster.until_ok();
        eventually(PATIENCE, "it works again", || locks.mutex("job").blocking_acquire().is_ok());
        drop(locks);
        cluster.assert_clean();
    }
}

#[test]
fn g9_what_needs_several_keys_of_a_slot_that_is_half_moved_is_refused_until_it_is_whole() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0).start();
        let locks = Locks::builder().cluster(cluster.urls()).ttl(ms(1_500));
        let locks = locks.outage(ms(1_500)).open().unwrap();
        let slot = cluster.slot_of("lock:{job}");
        let from = cluster.owner(slot);
        let to = cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
        let held = take(locks.mutex("{job}1").fenced());
        let moving = cluster.begin_move(slot, to);
        let said = is_refused_within(locks.mutex("{job}2").fenced(), 8_000);
        assert!(said.contains("moved"), "{said}");
        testbed::holds_for(ms(3_200), "who has a lock keeps it", || is_held(&held));
        moving.finish();
        held.blocking_verify().unwrap();
        held.blocking_release().unwrap();
        take(locks.mutex("{job}2").fenced()).blocking_release().unwrap();
        drop(locks);
        cluster.assert_clean();
    }
}

#[test]
fn g7_managers_with_sets_of_keys_at_all_nodes_in_any_order_come_to_an_end() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0).start();
        let open = || Locks::builder().cluster(cluster.urls()).open().unwrap();
        let (one, other) = (open(), open());
        together::tasks_with_sets_in_any_order_progress(&[&one, &other]);
        drop((one, other));
        cluster.assert_clean();
    }
}

#[test]
fn f13_a_sentinel_that_slept_through_the_fail_over_misleads_no_client() {
    let group = Sentinel::start();
    // It is asked before all others.
    let open = || {
        let builder = Locks::builder().sentinel(group.urls(), group.name()).ttl(ms(20_000));
        builder.open().unwrap()
    };
    let locks = open();
    let held = take(locks.mutex("job"));
    group.until_replicated();
    let sleeper = group.sentinels()[0].server();
    sleeper.freeze();
    let successor = group.fail_over();
    let start = Instant::now();
    eventually(PATIENCE, "it is confirmed at the new primary", || held.blocking_verify().is_ok());
    assert!(start.elapsed() < ms(3_000), "the others know: {:?}", start.elapsed());
    sleeper.thaw();
    // For a moment it names the old primary, which does not know of the locks of the new one.
    for _ in 0..10 {
        let newcomer = open();
        let error = newcomer.mutex("job").no_wait().blocking_acquire().map(drop).unwrap_err();
        assert!(error.is_busy(), "{error}");
        held.blocking_verify().unwrap();
    }
    held.blocking_release().unwrap();
    drop(locks);
    successor.server().assert_clean();
}

#[test]
fn g3_where_slots_need_not_be_covered_a_dead_node_is_shown_and_costs_its_own_locks_alone() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0);
        let cluster = cluster.arguments(["--cluster-require-full-coverage", "no"]).start();
        let locks = Locks::builder().cluster(cluster.urls()).outage(ms(1_500)).open().unwrap();
        let wire = |name: &str| format!("lock:{name}");
        let names = cluster.primaries().into_iter().map(|node| cluster.name_at(node, "job", wire));
        let names: Vec<_> = names.collect();
        for name in &names {
            take(locks.mutex(name)).blocking_release().unwrap();
        }
        let dead = cluster.owner_of(&wire(&names[0]));
        dead.server().kill9();
        let start = Instant::now();
        while start.elapsed() < ms(3_000) {
            let mut turns = Turns::of("the others go on");
            while turns.go_on() {
                let asked = Instant::now();
                for name in &names[1..] {
                    take(locks.mutex(name)).blocking_release().unwrap();
                }
                turns.must_be_below(ms(1_200), asked.elapsed());
            }
        }
        is_refused_within(locks.mutex(&names[0]), 8_000);
        let troubles = || -> Vec<String> {
            let nodes = locks.blocking_status(&names[1]).unwrap().server.nodes.into_iter();
            nodes.filter(|node| node.trouble.is_some()).map(|node| node.address).collect()
        };
        eventually(PATIENCE, "it is shown which node is in trouble", || {
            troubles() == [format!("127.0.0.1:{}", dead.port())]
        });
        dead.server().restart();
        cluster.until_ok();
        eventually(PATIENCE, "it works again", || {
            locks.mutex(&names[0]).blocking_acquire().is_ok()
        });
        eventually(PATIENCE, "and that is shown", || troubles().is_empty());
        drop(locks);
        cluster.assert_clean();
    }
}

#[test]
fn a_listing_while_slots_move_shows_what_stays_and_ends() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0).start();
        let locks = Locks::builder().cluster(cluster.urls()).open().unwrap();
        let names: Vec<_> = (0..60).map(|number| format!("stays{number}")).collect();
        let guards: Vec<_> = names.iter().map(|name| take(locks.mutex(name))).collect();
        let moving = take(locks.mutex("moves"));
        let slot = cluster.slot_of("lock:moves");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let lists = scope.spawn(|| {
                let mut lists = 0;
                while !done.load(std::sync::atomic::Ordering::SeqCst) || lists < 3 {
                    let seen: std::collections::BTreeSet<_> =
                        locks.blocking_list("*").map(|status| status.unwrap().key).collect();
                    assert!(names.iter().all(|name| seen.contains(name)), "{seen:?}");
                    lists += 1;
                }
            });
            let start = Instant::now();
            while start.elapsed() < ms(3_000) {
                let from = cluster.owner(slot);
                let primaries = cluster.primaries();
                let to = primaries.into_iter().find(|node| node.id() != from.id()).unwrap();
                cluster.move_slots(slot..=slot, to);
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            lists.join().unwrap();
        });
        moving.blocking_release().unwrap();
        guards.into_iter().for_each(|guard| guard.blocking_release().unwrap());
        drop(locks);
        cluster.assert_clean();
    }
}
