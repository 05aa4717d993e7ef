//! What a slow or absent node of a quorum must not keep.

use std::thread;
use std::time::Instant;

use redis_locks::{LockError, Locks, LossReason};
use testbed::{Server, eventually};

use crate::arena::{PATIENCE, ms, take};
use crate::quorum::Nodes;

#[test]
fn a_shutdown_waits_for_the_release_at_the_slowest_node() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().ttl(ms(60_000)).open().unwrap();
    let guard = take(locks.mutex("k"));
    eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
    // So that the release takes two round trips there.
    nodes.servers[2].run::<()>("SCRIPT FLUSH");
    nodes.proxies[2].delay_up(ms(100));
    guard.blocking_release().unwrap();
    locks.blocking_shutdown();
    nodes.assert_clean();
}

#[test]
fn what_reaches_a_node_after_its_adopter_has_released_it_leaves_nothing() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().ttl(ms(60_000)).open().unwrap();
    let urls = nodes.servers.iter().map(Server::url);
    let heirs = Locks::builder().quorum(urls).rejoin(ms(0)).ttl(ms(60_000)).open().unwrap();
    for locks in [&locks, &heirs] {
        let first = take(locks.mutex("first"));
        eventually(PATIENCE, "all can be reached", || nodes.having("lock:first") == 3);
        first.blocking_release().unwrap();
        eventually(PATIENCE, "none has it", || nodes.having("lock:first") == 0);
    }
    nodes.proxies[2].delay_up(ms(700));
    let token = take(locks.mutex("k")).detach();
    let token = token.to_string().parse().unwrap();
    heirs.mutex("k").blocking_adopt(token).unwrap().blocking_release().unwrap();
    // The acquisition has arrived there by then.
    thread::sleep(ms(1_000));
    eventually(ms(20_000), "it is given back", || nodes.having("lock:k") == 0);
}

#[test]
fn a_hold_that_may_have_been_interrupted_is_not_adopted() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().ttl(ms(1_000)).open().unwrap();
    let guard = take(locks.mutex("k"));
    eventually(PATIENCE, "all have it", || nodes.having("lock:k") == 3);
    let token = guard.detach();
    // As nodes have it that got it late, or for longer.
    for server in &nodes.servers[..2] {
        server.run::<()>("PEXPIRE lock:k 60000");
    }
    eventually(PATIENCE, "its lease has ended", || nodes.having("lock:k") == 2);
    let token = token.to_string().parse().unwrap();
    let adopted = locks.mutex("k").blocking_adopt(token);
    let is_lost = matches!(adopted, Err(LockError::Lost { reason: LossReason::Expired, .. }));
    assert!(is_lost, "{adopted:?}");
}

#[test]
fn a_late_adopter_does_not_end_the_hold() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().ttl(ms(1_000)).open().unwrap();
    let late = nodes.locks().ttl(ms(60_000)).open().unwrap();
    let token = take(locks.mutex("k")).detach();
    let given = Instant::now();
    let adopted = locks.mutex("k").ttl(ms(60_000)).blocking_adopt(token.clone()).unwrap();
    eventually(PATIENCE, "the lease of its giver has ended", || given.elapsed() > ms(1_000));
    let refused = late.mutex("k").blocking_adopt(token);
    assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    // What it has released, it has released by now.
    late.blocking_shutdown();
    adopted.blocking_release().unwrap();
}
