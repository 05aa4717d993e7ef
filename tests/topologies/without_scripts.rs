//! Mutexes by transactions, on clusters of several nodes.

use std::time::Instant;

use redis_locks::{Locks, Scripting};
use testbed::{Cluster, eventually, holds_for};

use crate::arena::{NOTIFIED, PATIENCE, Waiting, ms, take};
use crate::cluster::{keys, release, wire};
use crate::is_held;

#[test]
fn locks_without_scripts_work_at_every_node_and_follow_a_slot() {
    let cluster = Cluster::builder().replicas(0).start();
    let open = |scripting| {
        let locks = Locks::builder().cluster(cluster.urls()).scripting(scripting);
        locks.command_timeout(ms(1_000)).ttl(ms(60_000)).open().unwrap()
    };
    let [never, auto] = [Scripting::Never, Scripting::Auto];
    let each = [never, auto, never, never].map(open);
    let keys = keys(&cluster);
    let listens = |node: &testbed::Node| -> Vec<String> { node.server().run("PUBSUB CHANNELS") };
    for key in &keys {
        each.iter().for_each(|locks| release(take(locks.mutex(key))));
    }
    eventually(PATIENCE, "they listen at every node", || {
        cluster.primaries().into_iter().all(|node| listens(node).len() == each.len())
    });
    for (key, pair) in keys.iter().zip(each.windows(2)) {
        let [from, to] = pair else { unreachable!("windows of two") };
        let is_notified = || {
            let guard = take(from.mutex(key));
            let waiting = Waiting::start(to.mutex(key));
            waiting.must_wait();
            let start = Instant::now();
            release(guard);
            waiting.must_have_it();
            let passed = start.elapsed();
            waiting.finish();
            passed < NOTIFIED
        };
        assert!((0..5).any(|_| is_notified()), "it finds each release by looking");
        let idle = || from.mutex(key).linger(ms(60_000));
        let leave_idle = || {
            // Used several times: the leases of a key stop lingering for a while when one is asked
            // for elsewhere before it was used again.
            (0..3).for_each(|_| release(take(idle())));
            cluster.keys().contains(&wire(key))
        };
        eventually(PATIENCE, "its lease stays", leave_idle);
        let start = Instant::now();
        release(take(to.mutex(key).wait(PATIENCE)));
        assert!(start.elapsed() < ms(5_000), "asked for: {:?}", start.elapsed());
        // It may end before, by a late message that a waiter is there.
        eventually(PATIENCE, "its idle lease is ended", || {
            leave_idle() && to.blocking_force_release(key, "it is in the way").unwrap()
        });
        let next = take(to.mutex(key).wait(PATIENCE));
        eventually(PATIENCE, "the ended lease is not handed out", || {
            idle().blocking_try_acquire().unwrap().is_none()
        });
        assert!(to.blocking_force_release(key, "it hangs").unwrap());
        eventually(PATIENCE, "the holder learns of its loss", || !is_held(&next));
    }
    follow_a_slot_to_and_fro(&cluster, &each[0]);
    let [first, second, third, _] = &each;
    for chain in [[first, second, third], [second, first, second]] {
        pass_on_while_its_slot_moves(&cluster, chain);
    }
    drop(each);
    cluster.assert_clean();
}

#[test]
fn a_lock_without_scripts_is_renewed_while_its_slot_begins_to_move() {
    let cluster = Cluster::builder().replicas(0).start();
    let locks = Locks::builder().cluster(cluster.urls()).scripting(Scripting::Never);
    let locks = locks.command_timeout(ms(1_000)).open().unwrap();
    let guard = take(locks.mutex("job").ttl(ms(2_000)));
    let slot = cluster.slot_of(&wire("job"));
    // The lock's own key stays for now.
    let moving = cluster.begin_move(slot, other_than(&cluster, cluster.owner(slot)));
    holds_for(ms(3_000), "it is renewed", || is_held(&guard));
    moving.finish();
    // A check has a sixth of the lease, which a machine that does much else may exceed.
    eventually(PATIENCE, "the server confirms it", || guard.blocking_verify().is_ok());
    release(guard);
    cluster.assert_clean();
}

/// Each time, the first that is asked is the node that had the slot before.
fn follow_a_slot_to_and_fro(cluster: &Cluster, locks: &Locks) {
    let slot = cluster.slot_of(&wire("job"));
    let home = cluster.owner(slot);
    let away = other_than(cluster, home);
    release(take(locks.mutex("job")));
    for (to, is_fenced) in [(away, false), (home, false), (away, true), (home, true)] {
        cluster.move_slots(slot..=slot, to);
        let request = locks.mutex("job").no_wait();
        let guard = take(if is_fenced { request.fenced() } else { request });
        guard.blocking_verify().unwrap();
        release(guard);
    }
}

/// One takes a lock, and each gives it to the next, while its slot goes elsewhere and back.
fn pass_on_while_its_slot_moves(cluster: &Cluster, chain: [&Locks; 3]) {
    let slot = cluster.slot_of(&wire("job"));
    let begin_move = || cluster.begin_move(slot, other_than(cluster, cluster.owner(slot)));
    let token = take(chain[0].mutex("job")).detach();
    begin_move().finish();
    let guard = chain[1].mutex("job").blocking_adopt(token).unwrap();
    let moving = begin_move();
    let token = guard.detach();
    moving.finish();
    let guard = chain[2].mutex("job").blocking_adopt(token).unwrap();
    guard.blocking_verify().unwrap();
    let waiting = Waiting::start(chain[0].mutex("job"));
    waiting.must_wait();
    release(guard);
    waiting.must_have_it();
    waiting.finish();
}

fn other_than<'a>(cluster: &'a Cluster, node: &testbed::Node) -> &'a testbed::Node {
    cluster.primaries().into_iter().find(|other| other.id() != node.id()).unwrap()
}
