//! Directories of real clusters and sentinels.

use std::future::Future;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testbed::{Cluster, FailOver, Proxy, Sentinel, Server, ServerBinary};

use super::super::Terms;
use super::super::address::Address;
use super::{ClusterDirectory, NodeAccess, SentinelDirectory, cluster_view, node_list};
use crate::domain::fault::{Fault, FaultClass};
use crate::store::wire::{Directory, Map, NodeName, Primary};

/// A time limit for what servers do on their side, such as elections.
const LONG: Duration = Duration::from_secs(30);

fn terms() -> Terms {
    Terms::new("lock", "m", Duration::from_secs(2))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

fn open(urls: &[String]) -> Vec<redis::Client> {
    urls.iter().map(|url| redis::Client::open(url.as_str()).unwrap()).collect()
}

fn cluster_of(urls: &[String]) -> ClusterDirectory {
    let seeds = open(urls);
    let access = NodeAccess::like(&seeds[0], None);
    ClusterDirectory::new(seeds, access, terms())
}

fn sentinel_of(urls: &[String], name: &str) -> SentinelDirectory {
    let seeds = open(urls);
    let access = NodeAccess::like(&seeds[0], None);
    SentinelDirectory::new(name.into(), seeds, (access.clone(), terms()), (access, terms()))
}

/// Binaries that differ in what their nodes say.
fn binaries() -> Vec<ServerBinary> {
    [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten().collect()
}

fn owner(map: &Map, slot: u16) -> Option<&Primary> {
    map.primaries.iter().find(|one| one.slots.iter().any(|range| range.contains(&slot)))
}

fn name(port: u16) -> NodeName {
    format!("127.0.0.1:{port}").into()
}

#[track_caller]
fn until(directory: &dyn Directory, what: &str, wanted: impl Fn(&Map) -> bool) -> Map {
    let start = Instant::now();
    run(async {
        loop {
            let map = directory.look(Vec::new()).await;
            match map {
                Ok(map) if wanted(&map) => return map,
                other => assert!(start.elapsed() < LONG, "not {what}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

async fn connect(directory: &dyn Directory, node: &NodeName) -> Result<(), Fault> {
    directory.connector(node).connect().await.map(drop)
}

#[test]
fn a_map_follows_moves_and_fail_overs_and_dead_seeds() {
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).start();
        // One of the seeds has never existed.
        let seeds = ["redis://127.0.0.1:1".to_owned(), cluster.urls()[0].clone()];
        let directory = cluster_of(&seeds);
        let first = run(directory.look(Vec::new())).unwrap();
        assert_eq!(first.primaries.len(), 3);
        for slot in [0, 5_460, 5_461, 10_922, 16_383] {
            let port = cluster.owner(slot).port();
            assert_eq!(owner(&first, slot).unwrap().name, name(port), "{slot}");
        }

        let to = cluster.owner(16_383);
        cluster.move_slots(0..=1, to);
        let moved = |map: &Map| owner(map, 1).is_some_and(|one| one.name == name(to.port()));
        let second = until(&directory, "moved", moved);
        assert!(second.epoch > first.epoch, "{} after {}", second.epoch, first.epoch);
        assert_eq!(owner(&second, 2).unwrap().name, name(cluster.owner(2).port()));

        let before = cluster.owner(6_000);
        cluster.until_replicated(before);
        // In one of the runs the only seed that existed is gone too.
        before.server().kill9();
        let successor = cluster.until_replaced(before, 6_000);
        let replaced =
            |map: &Map| owner(map, 6_000).is_some_and(|one| one.name == name(successor.port()));
        let third = until(&directory, "replaced", replaced);
        assert!(third.epoch > second.epoch);
        cluster.fail_over(cluster.replica_of(cluster.owner(0)), FailOver::TakeOver);
        let port = cluster.owner(0).port();
        until(&directory, "taken over", |map| owner(map, 0).is_some_and(|o| o.name == name(port)));
    }
}

#[test]
fn slots_that_nobody_has_are_nobodys_and_a_frozen_node_delays_nobody() {
    let cluster = Cluster::builder().replicas(0).start();
    let directory = cluster_of(&cluster.urls());
    for node in cluster.nodes() {
        let _ = node.server().query::<()>(redis::cmd("CLUSTER").arg("DELSLOTS").arg(7));
    }
    let map = until(&directory, "uncovered", |map| owner(map, 7).is_none());
    assert!(owner(&map, 8).is_some());
    cluster.nodes()[0].server().freeze();
    // Whatever waits for the frozen node does so for its time limit of a second, each time.
    testbed::must_be_prompt(Duration::from_millis(900), "the others answer for it", || {
        let start = Instant::now();
        run(directory.look(Vec::new())).unwrap();
        start.elapsed()
    });
    cluster.nodes()[0].server().thaw();
}

#[test]
fn g17_a_node_of_another_cluster_at_a_known_address_is_not_used() {
    let other = Cluster::builder().replicas(0).start();
    let proxied = Cluster::builder().replicas(0).proxied().start();
    let directory = cluster_of(&proxied.urls());
    let map = run(directory.look(Vec::new())).unwrap();
    let victim = &proxied.nodes()[0];
    run(connect(&directory, &name(victim.port()))).unwrap();
    // From now on its address leads elsewhere.
    victim.proxy().redirect(other.nodes()[0].server().port());
    victim.proxy().kill_all();
    let error = run(connect(&directory, &name(victim.port()))).unwrap_err();
    assert_eq!(error.class, FaultClass::Refused);
    assert!(error.what.contains("another node"), "{}", error.what);
    for _ in 0..3 {
        let again = run(directory.look(Vec::new())).unwrap();
        let names = |map: &Map| {
            let mut names: Vec<_> = map.primaries.iter().map(|one| one.name.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&again), names(&map), "the other cluster's nodes are none of ours");
    }
    // When all lead elsewhere, it is the other cluster that is meant now.
    for (node, new) in proxied.nodes().iter().zip(other.nodes()) {
        node.proxy().redirect(new.server().port());
        node.proxy().kill_all();
    }
    let theirs = name(other.nodes()[0].port());
    let new = until(&directory, "theirs", |map| map.primaries.iter().any(|one| one.name == theirs));
    assert!(new.epoch > map.epoch, "so that it counts as the later one");
}

/// As a name that the nodes don't announce would be.
#[test]
fn a_seed_under_another_address_than_its_node_is_not_asked_again_and_again() {
    let cluster = Cluster::builder().replicas(0).start();
    let seeds: Vec<_> = cluster.nodes().iter().map(|node| Proxy::to(node.port())).collect();
    let urls: Vec<_> = seeds.iter().map(Proxy::url).collect();
    let directory = cluster_of(&urls);
    run(async {
        for _ in 0..5 {
            assert_eq!(directory.look(Vec::new()).await.unwrap().primaries.len(), 3);
        }
    });
    let counts = || seeds.iter().map(Proxy::count).collect::<Vec<_>>();
    // A proxy counts a connection when it has accepted it, which may be after the last look.
    testbed::eventually(LONG, "each seed was asked", || counts().iter().all(|count| *count > 0));
    let is_once = || counts() == [1, 1, 1];
    testbed::holds_for(Duration::from_millis(300), "its nodes are asked where they say", is_once);
}

#[test]
fn seeds_are_asked_in_time_where_all_nodes_have_other_addresses_by_now() {
    let cluster = Cluster::builder().replicas(0).start();
    let directory = cluster_of(&cluster.urls());
    // They take connections and never answer.
    let silent: Vec<_> = (0..12).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let known = silent.iter().map(|it| name(it.local_addr().unwrap().port())).collect();
    let start = Instant::now();
    let map = run(directory.look(known)).unwrap();
    assert_eq!(map.primaries.len(), 3);
    // Whoever drives the read gives it up by then.
    assert!(start.elapsed() < terms().time_limit, "{:?}", start.elapsed());
}

#[test]
fn a_dead_node_is_not_knocked_at_whenever_the_map_is_read() {
    let cluster = Cluster::builder().replicas(0).proxied().start();
    let directory = cluster_of(&cluster.urls());
    let (dead, time) = (&cluster.nodes()[0], Duration::from_millis(1_500));
    run(async {
        directory.look(Vec::new()).await.unwrap();
        dead.server().kill9();
        let (before, start, mut looks) = (dead.proxy().count(), Instant::now(), 0);
        while start.elapsed() < time {
            directory.look(Vec::new()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            looks += 1;
        }
        let tries = dead.proxy().count() - before;
        assert!((2..8).contains(&tries), "{tries} tries to connect in {looks} looks");
    });
    dead.server().restart();
    until(&directory, "well again", |map| map.is_healthy && !map.is_disputed);
}

#[test]
fn what_is_no_cluster_and_a_wrong_password_are_distinguished_from_what_passes() {
    let server = Server::builder().user("app on >secret ~* &* +@all").start();
    if std::env::var_os("TESTBED_CLUSTER").is_none() {
        let fault = run(cluster_of(&[server.url()]).look(Vec::new())).unwrap_err();
        assert_eq!(fault.class, FaultClass::Permanent);
        assert!(fault.what.contains("no node of a cluster"), "{}", fault.what);
    }
    let wrong = format!("redis://app:wrong@127.0.0.1:{}", server.port());
    let fault = run(cluster_of(&[wrong]).look(Vec::new())).unwrap_err();
    assert_eq!(fault.class, FaultClass::Permanent);
    assert!(fault.what.contains("password"), "{}", fault.what);
    let nobody = run(cluster_of(&["redis://127.0.0.1:1".into()]).look(Vec::new())).unwrap_err();
    assert_eq!(nobody.class, FaultClass::Refused, "it may come up");
}

#[test]
fn every_way_in_which_servers_tell_their_slots_is_read() {
    let reply = "*3\r\n\
        *3\r\n:0\r\n:99\r\n*3\r\n$0\r\n\r\n:7000\r\n$1\r\na\r\n\
        *4\r\n:100\r\n:199\r\n*2\r\n$3\r\n::1\r\n:7001\r\n*2\r\n$1\r\nh\r\n:7002\r\n\
        *3\r\n:200\r\n:200\r\n*4\r\n$-1\r\n:7000\r\n$1\r\na\r\n*2\r\n$8\r\nhostname\r\n$1\r\nx\r\n";
    let slots = redis::parse_redis_value(reply.as_bytes()).unwrap();
    let info = b"cluster_state:fail\r\ncluster_current_epoch:12\r\n".to_vec();
    let view = cluster_view::view(&[slots, redis::Value::BulkString(info)], "asked").unwrap();
    assert_eq!((view.epoch, view.is_healthy, view.covered()), (12, false, 201));
    let own = view.shards.iter().find(|shard| shard.nodes[0].id.is_some()).unwrap();
    assert_eq!(own.slots, [0..=99, 200..=200]);
    assert_eq!(own.nodes[0].address, Address::new("asked", 7000));
    let old = view.shards.iter().find(|shard| shard.nodes[0].id.is_none()).unwrap();
    assert_eq!(old.nodes[0].address.to_string(), "[::1]:7001");
    assert_eq!(old.nodes[1].address, Address::new("h", 7002));
}

#[test]
fn f13_the_sentinel_with_the_highest_epoch_is_believed() {
    let report = |epoch, port| node_list::SentinelReport {
        epoch,
        primary: Address::new("h", port),
        others: Vec::new(),
        down_after: None,
    };
    let latest =
        |all: &[node_list::SentinelReport]| node_list::latest(all.to_vec()).unwrap().primary.port;
    assert_eq!(latest(&[report(3, 1), report(3, 1), report(4, 2)]), 2);
    assert_eq!(latest(&[report(3, 1), report(3, 2), report(3, 1)]), 1);
}

#[test]
fn sentinels_tell_of_each_new_primary_by_themselves() {
    // Sentinels of both families say the same, and start slowly.
    for binary in binaries().into_iter().take(1) {
        let group = Sentinel::builder().binary(binary).start();
        // The others are learned from the first one.
        let directory = Arc::new(sentinel_of(&group.urls()[..1], group.name()));
        run(async {
            let first = directory.look(Vec::new()).await.unwrap();
            let before = group.primary().port();
            assert_eq!(first.primaries.len(), 1);
            assert_eq!(first.primaries[0].name, name(before));
            assert_eq!(first.primaries[0].slots, [0..=16_383]);
            let watched = Arc::clone(&directory);
            let changed = tokio::spawn(async move { watched.changed().await });
            let heard = |node: &testbed::Node| {
                node.server().run::<String>("CLIENT LIST TYPE pubsub").contains("sub=1")
            };
            let start = Instant::now();
            while !group.sentinels().iter().all(heard) {
                assert!(start.elapsed() < LONG, "it does not listen to all sentinels");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let successor = group.fail_over().port();
            tokio::time::timeout(LONG, changed).await.expect("it is notified").unwrap();
            let start = Instant::now();
            let second = loop {
                match directory.look(Vec::new()).await {
                    Ok(map) if map.primaries[0].name == name(successor) => break map,
                    other => assert!(start.elapsed() < LONG, "{other:?}"),
                }
            };
            assert!(second.epoch > first.epoch);
            connect(&*directory, &name(successor)).await.unwrap();
            let error = connect(&*directory, &name(before)).await.unwrap_err();
            assert!(error.what.contains("slave"), "{}", error.what);
            // The sentinel that was asked first is gone.
            group.sentinels()[0].server().kill9();
            assert_eq!(
                directory.look(Vec::new()).await.unwrap().primaries[0].name,
                name(successor)
            );
        });
    }
}

#[test]
fn an_unknown_primary_is_reported_by_its_name() {
    let group = Sentinel::builder().replicas(1).start();
    let fault = run(sentinel_of(&group.urls(), "other").look(Vec::new())).unwrap_err();
    assert_eq!(fault.class, FaultClass::Permanent);
    assert!(fault.what.contains("`other`"), "{}", fault.what);
}
