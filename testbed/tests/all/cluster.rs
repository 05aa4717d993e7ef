//! A cluster of several nodes does what tests ask of it.

use std::time::{Duration, Instant};

use redis::{RedisResult, Value};
use testbed::{Cluster, FailOver, Node, ServerBinary, eventually};

const KEY: &str = "lock:job";

fn set(cluster: &Cluster, key: &str) {
    cluster.query::<()>(key, redis::cmd("SET").arg(key).arg(1).arg("PX").arg(60_000)).unwrap();
    cluster.until_replicated(cluster.owner_of(key));
}

/// The answer to a client that connects to the announced address.
fn ask(node: &Node, words: &[&str]) -> RedisResult<Value> {
    let client = redis::Client::open(node.url()).unwrap();
    let mut connection = client.get_connection()?;
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).query(&mut connection)
}

#[test]
fn shares_the_slots_among_its_primaries() {
    let cluster = Cluster::start();
    assert_eq!(cluster.nodes().len(), 6);
    assert_eq!(cluster.primaries().len(), 3);
    for primary in cluster.primaries() {
        assert_eq!(cluster.replicas_of(primary).len(), 1);
        let name = cluster.name_at(primary, "job", |name| format!("lock:{name}"));
        let key = format!("lock:{name}");
        assert_eq!(cluster.owner_of(&key).id(), primary.id());
        set(&cluster, &key);
    }
    assert_eq!(cluster.keys().len(), 3);
    cluster.flush();
    cluster.assert_clean();
    let other =
        cluster.primaries().into_iter().find(|node| node.id() != cluster.owner_of(KEY).id());
    let moved = ask(other.unwrap(), &["GET", KEY]).unwrap_err().to_string();
    assert!(moved.to_lowercase().contains("moved"), "{moved}");
}

#[test]
fn a_replica_takes_the_place_of_a_killed_primary_which_comes_back_as_its_replica() {
    let cluster = Cluster::start();
    set(&cluster, KEY);
    let (slot, owner) = (cluster.slot_of(KEY), cluster.owner_of(KEY));
    let replica = cluster.replica_of(owner);
    cluster.kill9(owner);
    let successor = cluster.until_replaced(owner, slot);
    assert_eq!(successor.id(), replica.id());
    assert!(cluster.exists(KEY));
    cluster.restart(owner);
    assert_eq!(cluster.replica_of(successor).id(), owner.id());
}

#[test]
fn a_frozen_primary_is_replaced_and_steps_down_when_it_wakes() {
    let cluster = Cluster::start();
    let (slot, owner) = (cluster.slot_of(KEY), cluster.owner_of(KEY));
    owner.server().freeze();
    assert!(!owner.is_live());
    let successor = cluster.until_replaced(owner, slot);
    owner.server().thaw();
    cluster.until_ok();
    assert!(!owner.is_primary() && successor.is_primary());
}

#[test]
fn fails_over_in_each_manner() {
    let cluster = Cluster::start();
    set(&cluster, KEY);
    for how in [FailOver::Plain, FailOver::Force, FailOver::TakeOver] {
        let replica = cluster.replica_of(cluster.owner_of(KEY));
        cluster.fail_over(replica, how);
        assert_eq!(cluster.owner_of(KEY).id(), replica.id(), "{how:?}");
        assert!(cluster.exists(KEY), "{how:?}");
    }
}

#[test]
fn moves_slots_with_their_keys_to_and_fro() {
    let cluster = Cluster::builder().replicas(0).start();
    set(&cluster, KEY);
    let slot = cluster.slot_of(KEY);
    let from = cluster.owner(slot);
    let to = cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
    let around = slot.saturating_sub(5)..=slot;
    for target in [to, from] {
        cluster.move_slots(around.clone(), target);
        cluster.until_ok();
        assert_eq!(cluster.owner(slot).id(), target.id());
        assert!(target.server().exists(KEY));
    }
}

#[test]
fn a_slot_can_stay_half_moved() {
    let cluster = Cluster::builder().replicas(0).start();
    let (one, other) = ("lock:{job}:a", "lock:{job}:b");
    set(&cluster, one);
    set(&cluster, other);
    let slot = cluster.slot_of(one);
    let from = cluster.owner(slot);
    let to = cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
    let half = cluster.begin_move(slot, to);
    half.move_key(one);
    assert_eq!(half.keys_left(), [other]);
    let asked = ask(from, &["GET", one]).unwrap_err().to_string();
    assert!(asked.to_lowercase().contains("ask"), "{asked}");
    assert!(ask(from, &["GET", other]).is_ok());
    let split = ask(from, &["MGET", one, other]).unwrap_err();
    assert_eq!(split.code(), Some("TRYAGAIN"), "{split}");
    half.abandon();
    assert!(ask(from, &["MGET", one, other]).is_ok());
    let again = cluster.begin_move(slot, to);
    again.finish();
    cluster.until_ok();
    assert!(ask(to, &["MGET", one, other]).is_ok());
}

#[test]
fn a_slot_whose_owner_is_replaced_meanwhile_is_moved_from_its_heir() {
    let cluster = Cluster::builder().start();
    set(&cluster, KEY);
    let slot = cluster.slot_of(KEY);
    let from = cluster.owner(slot);
    let to = cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
    let half = cluster.begin_move(slot, to);
    // Until the move ends, the target knows no owner of the slot, and takes the cluster for down.
    let heir = cluster.replica_of(from);
    heir.server().run::<()>("CLUSTER FAILOVER");
    eventually(Duration::from_secs(10), "it is replaced", || cluster.owner(slot).id() == heir.id());
    half.finish();
    cluster.until_ok();
    assert_eq!(cluster.owner(slot).id(), to.id());
    assert!(to.server().exists(KEY));
}

#[test]
fn valkey_moves_slots_in_one_step() {
    let Some(valkey) = ServerBinary::valkey(9) else { testbed::skip!("no Valkey 9 to be had") };
    let cluster = Cluster::builder().binary(valkey).start();
    set(&cluster, KEY);
    let slot = cluster.slot_of(KEY);
    let from = cluster.owner(slot);
    let to = cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
    assert!(cluster.move_slots_atomically(slot..=slot, to));
    assert_eq!(cluster.owner(slot).id(), to.id());
    assert!(cluster.exists(KEY));
    assert_eq!(from.server().run::<u64>("DBSIZE"), 0);
}

#[test]
fn a_server_that_cannot_move_slots_in_one_step_says_so() {
    let Some(old) = ServerBinary::redis_6() else { testbed::skip!("no Redis 6.2 to be had") };
    let cluster = Cluster::builder().binary(old).replicas(0).start();
    let slot = cluster.slot_of(KEY);
    let from = cluster.owner(slot).id().to_owned();
    let to = cluster.primaries().into_iter().find(|node| node.id() != from).unwrap();
    assert!(!cluster.move_slots_atomically(slot..=slot, to));
    assert_eq!(cluster.owner(slot).id(), from);
    cluster.move_slots(slot..=slot, to);
    assert_eq!(cluster.owner(slot).id(), to.id());
}

#[test]
fn clients_are_sent_to_the_proxies_whose_faults_spare_replication() {
    let cluster = Cluster::builder().proxied().start();
    let owner = cluster.owner_of(KEY);
    assert_eq!(owner.port(), owner.proxy().port());
    let other = cluster.primaries().into_iter().find(|node| node.id() != owner.id()).unwrap();
    let moved = ask(other, &["GET", KEY]).unwrap_err().to_string();
    assert!(moved.contains(&owner.port().to_string()), "{moved}");

    owner.proxy().hole();
    let mut client = redis::Client::open(owner.url())
        .unwrap()
        .get_connection_with_timeout(Duration::from_secs(2));
    let timed_out = match &mut client {
        Ok(connection) => {
            connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            redis::cmd("PING").query::<()>(connection).is_err()
        }
        Err(_) => true,
    };
    assert!(timed_out);
    // Clients get no answer, but replication goes on, and no node takes this one for dead.
    set(&cluster, KEY);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        assert_eq!(cluster.owner_of(KEY).id(), owner.id());
        assert_eq!(cluster.replicas_of(owner).len(), 1);
        std::thread::sleep(Duration::from_millis(100));
    }
    owner.proxy().pass();
    assert!(ask(owner, &["GET", KEY]).is_ok());
}
