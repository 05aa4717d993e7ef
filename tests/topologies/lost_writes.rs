//! Locks that a primary granted, and that the server which replaced it never received: two may be
//! inside for a while, and the fence shows who came later.

use redis_locks::{Guard, LockError, Locks};
use testbed::{Cluster, FailOver, Node, Sentinel, Server, ServerBinary, eventually};

use crate::arena::{PATIENCE, ms, take};
use crate::is_held;

fn binaries() -> Vec<ServerBinary> {
    [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten().collect()
}

/// The replica does not receive what this primary executes from now on.
fn part(primary: &Node, replica: &Node) {
    replica.server().freeze();
    // Otherwise it would read later what was sent to it before the primary died.
    primary.server().run::<u64>("CLIENT KILL TYPE replica");
}

fn fence(guard: &Guard) -> u64 {
    guard.fence().expect("it was asked for")
}

/// The second holder is there although the first one believes to hold: the first one's writes are
/// recognised by its fence, and it learns of the loss when it renews, which is at once.
#[track_caller]
fn is_recognised_by_its_fence(first: Guard, other: &Locks) {
    let second = take(other.mutex("job").fenced().wait(PATIENCE));
    assert!(fence(&second) > fence(&first), "{:?} after {:?}", second.fence(), first.fence());
    // Its lease is much longer than any caller waits here.
    eventually(ms(3_000), "the first one hears of it", || !is_held(&first));
    let error = first.blocking_release().unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
    second.blocking_verify().unwrap();
    second.blocking_release().unwrap();
}

#[test]
fn f4_g8_a_lock_that_the_heir_in_a_cluster_never_heard_of_is_lost_and_fenced() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).start();
        let open = || Locks::builder().cluster(cluster.urls()).ttl(PATIENCE * 3).open().unwrap();
        let (one, other) = (open(), open());
        take(one.mutex("job").fenced()).blocking_release().unwrap();
        let victim = cluster.owner_of("lock:job");
        let (slot, replica) = (cluster.slot_of("lock:job"), cluster.replica_of(victim));
        cluster.until_replicated(victim);
        part(victim, replica);
        let first = take(one.mutex("job").fenced());
        victim.server().kill9();
        replica.server().thaw();
        cluster.until_replaced(victim, slot);
        is_recognised_by_its_fence(first, &other);
        drop((one, other));
        cluster.assert_clean();
    }
}

#[test]
fn f4_a_lock_that_the_heir_in_a_sentinel_group_never_heard_of_is_lost_and_fenced() {
    let group = Sentinel::start();
    let open = || {
        let builder = Locks::builder().sentinel(group.urls(), group.name());
        builder.ttl(PATIENCE * 3).open().unwrap()
    };
    let (one, other) = (open(), open());
    take(one.mutex("job").fenced()).blocking_release().unwrap();
    group.until_replicated();
    let (victim, replica) = (group.primary(), group.replica());
    part(victim, replica);
    let first = take(one.mutex("job").fenced());
    victim.server().kill9();
    replica.server().thaw();
    let successor = group.until_replaced(victim);
    is_recognised_by_its_fence(first, &other);
    drop((one, other));
    successor.server().assert_clean();
}

/// One replica has it, and another one that has not is promoted: what `replicas(1)` of two can't
/// prevent.
#[test]
fn f6_a_lock_that_one_replica_had_is_lost_and_fenced_when_the_other_is_promoted() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(2).start();
        let open = |replicas| {
            let builder = Locks::builder().cluster(cluster.urls()).ttl(PATIENCE * 3);
            builder.replicas(replicas).open().unwrap()
        };
        let (one, other) = (open(1), open(0));
        take(one.mutex("job").fenced()).blocking_release().unwrap();
        let victim = cluster.owner_of("lock:job");
        cluster.until_replicated(victim);
        let replicas = cluster.replicas_of(victim);
        let (good, stale) = (replicas[0], replicas[1]);
        part(victim, stale);
        let first = take(one.mutex("job").fenced().wait(PATIENCE));
        eventually(PATIENCE, "the other replica has it", || good.server().run::<u64>("DBSIZE") > 0);
        good.server().freeze();
        victim.server().kill9();
        stale.server().thaw();
        cluster.fail_over(stale, FailOver::TakeOver);
        is_recognised_by_its_fence(first, &other);
        good.server().thaw();
        drop((one, other));
        cluster.until_ok();
        cluster.assert_clean();
    }
}

/// A manager that is left alone with the old primary, while all others follow the new one. For the
/// manager a network that is cut in two looks the same as a promotion by hand.
#[test]
fn f8_an_old_primary_that_goes_on_alone_is_fenced_and_can_be_made_to_refuse() {
    if std::env::var_os("TESTBED_CLUSTER").is_some() {
        testbed::skip!("whose replica a node of a cluster is, the cluster decides");
    }
    for guarded in ["nothing", "replicas", "min-replicas"] {
        let (old, new) = (Server::start(), Server::start());
        new.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", old.port()));
        let linked = || new.info("replication", "master_link_status").as_deref() == Some("up");
        eventually(PATIENCE, "the replica is linked", linked);
        if guarded == "min-replicas" {
            old.run::<()>("CONFIG SET min-replicas-max-lag 1");
            old.run::<()>("CONFIG SET min-replicas-to-write 1");
        }
        let replicas = u32::from(guarded == "replicas");
        let one = Locks::builder().url(old.url()).replicas(replicas).ttl(ms(3_000));
        let (one, other) = (one.open().unwrap(), Locks::open(new.url()).unwrap());
        let mut first = take(one.mutex("before").fenced());
        let replicated = || new.exists("lock:before");
        eventually(PATIENCE, "the replica has it", replicated);
        new.run::<()>("REPLICAOF NO ONE");
        if guarded == "nothing" {
            first = take(one.mutex("job").fenced());
            let second = take(other.mutex("job").fenced());
            assert!(fence(&second) > fence(&first));
            testbed::holds_for(ms(4_000), "it is renewed there", || is_held(&first));
            assert!(is_held(&second), "and its successor believes so as well");
            drop((first, second));
        } else {
            eventually(PATIENCE, "it is lost when it can't be renewed", || !is_held(&first));
            let error = one.mutex("job").wait(ms(500)).blocking_acquire().map(drop).unwrap_err();
            assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
            take(other.mutex("job").fenced()).blocking_release().unwrap();
        }
    }
}
