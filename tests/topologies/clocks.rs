//! Nodes whose clocks differ.

use redis_locks::Locks;
use testbed::{ClockShim, Cluster, FailOver, eventually};

use crate::arena::{PATIENCE, log, ms, take};
use crate::is_held;

#[test]
fn f11_an_heir_whose_clock_is_ahead_is_warned_of_and_gets_a_whole_lease_and_larger_fences() {
    let Some(shim) = ClockShim::new() else { testbed::skip!("there is no clock to be moved") };
    log::listen();
    // The replicas of three primaries are the nodes from 3 on.
    let cluster = (3..6).fold(Cluster::builder(), |builder, node| builder.clock(node, &shim));
    let cluster = cluster.start();
    shim.set(20.0);
    let locks = Locks::builder().cluster(cluster.urls()).ttl(ms(30_000)).open().unwrap();
    let held = take(locks.mutex("job").fenced());
    let before = held.fence().unwrap();
    let owner = cluster.owner_of("lock:job");
    cluster.until_replicated(owner);
    cluster.fail_over(cluster.replica_of(owner), FailOver::Plain);
    // It counted 20 s of the lease at once.
    eventually(ms(6_000), "it is renewed before a third of its lease is over", || {
        cluster.pttl("lock:job").is_some_and(|left| left > 25_000)
    });
    assert!(is_held(&held));
    eventually(PATIENCE, "the clocks are warned of", || {
        log::count(&["its clock is", "apart from that of"]) > 0
    });
    held.blocking_release().unwrap();
    let ahead = take(locks.mutex("job").fenced());
    assert!(ahead.fence().unwrap() > before);
    ahead.blocking_release().unwrap();
    // Back to the one whose clock is right.
    let ahead = take(locks.mutex("job").fenced());
    let successor = cluster.owner_of("lock:job");
    cluster.until_replicated(successor);
    cluster.fail_over(cluster.replica_of(successor), FailOver::Plain);
    eventually(PATIENCE, "it is confirmed there", || ahead.blocking_verify().is_ok());
    let before = ahead.fence().unwrap();
    ahead.blocking_release().unwrap();
    let next = take(locks.mutex("job").fenced());
    assert!(next.fence().unwrap() > before, "{:?} after {before}", next.fence());
    next.blocking_release().unwrap();
    drop(locks);
    cluster.assert_clean();
}
