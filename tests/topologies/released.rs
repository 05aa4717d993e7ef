//! Releases that a primary answered, and that the replica which replaced it never received.

use redis_locks::{LockRequest, Locks};
use testbed::{Cluster, Node, Sentinel, ServerBinary};

use crate::arena::{PATIENCE, ms, take};

/// Much longer than any caller waits here: what stands until its lease ends is seen.
const LEASE: std::time::Duration = ms(90_000);

/// The locks of each kind, as two managers ask for them.
fn requests(locks: &Locks, name: &str) -> [LockRequest; 4] {
    let key = |kind: &str| format!("{name}-{kind}");
    [
        locks.mutex(key("mutex")),
        locks.write(key("write")),
        locks.permit(key("permit"), 1),
        locks.all((0..3).map(|number| key(&format!("all{number}")))),
    ]
}

/// The replica does not receive what this primary executes from now on.
fn part(primary: &Node, replica: &Node) {
    replica.server().freeze();
    // Otherwise it would read later what was sent to it before the primary died.
    primary.server().run::<u64>("CLIENT KILL TYPE replica");
}

/// `one` has released everything just before its server died; `other` must get it after that.
fn must_be_free(other: &Locks, name: &str) {
    for request in requests(other, name) {
        let what = format!("{request:?}");
        let guard = request.wait(PATIENCE).blocking_acquire();
        guard.unwrap_or_else(|error| panic!("{what}: {error}")).blocking_release().unwrap();
    }
}

#[test]
fn g8_a_release_that_the_heir_in_a_cluster_never_heard_of_is_repeated() {
    for binary in [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten() {
        let cluster = Cluster::builder().binary(binary).start();
        let open = || Locks::builder().cluster(cluster.urls()).ttl(LEASE).open().unwrap();
        let (one, other) = (open(), open());
        let mut guards: Vec<_> = requests(&one, "job").into_iter().map(take).collect();
        let victim = cluster.owner_of("lock:job-mutex");
        let slot = cluster.slot_of("lock:job-mutex");
        let replica = cluster.replica_of(victim);
        cluster.until_replicated(victim);
        part(victim, replica);
        guards.drain(..).for_each(|guard| guard.blocking_release().unwrap());
        victim.server().kill9();
        replica.server().thaw();
        cluster.until_replaced(victim, slot);
        must_be_free(&other, "job");
        drop((one, other));
        cluster.assert_clean();
    }
}

#[test]
fn f4_a_release_that_the_heir_in_a_sentinel_group_never_heard_of_is_repeated() {
    let group = Sentinel::start();
    let open = || Locks::builder().sentinel(group.urls(), group.name()).ttl(LEASE).open().unwrap();
    let (one, other) = (open(), open());
    let mut guards: Vec<_> = requests(&one, "job").into_iter().map(take).collect();
    group.until_replicated();
    let (victim, replica) = (group.primary(), group.replica());
    part(victim, replica);
    guards.drain(..).for_each(|guard| guard.blocking_release().unwrap());
    victim.server().kill9();
    replica.server().thaw();
    let successor = group.until_replaced(victim);
    must_be_free(&other, "job");
    drop((one, other));
    successor.server().assert_clean();
}
