//! Users who have the rights that `docs/PROTOCOL.md` names and no others, and passwords that change.

use redis_locks::{Guard, LockError, LockRequest, Locks, LocksBuilder};
use testbed::{Cluster, Sentinel, Server, ServerBinary, eventually, holds_for, must_be_prompt};

use crate::arena::{NOTIFIED, PATIENCE, Waiting, ms, take};
use crate::is_held;

const DOCS: &str = include_str!("../../docs/PROTOCOL.md");

/// What the page has in a block of its own: for mutexes, for other kinds besides, without scripts,
/// for nodes of a cluster besides.
fn blocks() -> [String; 4] {
    let (_, page) = DOCS.split_once("## Rights").unwrap();
    let blocks = page.split("```text").skip(1).map(|rest| {
        let words = rest.split("```").next().unwrap().split_whitespace();
        words.filter(|word| !matches!(*word, "ACL" | "SETUSER")).collect::<Vec<_>>().join(" ")
    });
    blocks.collect::<Vec<_>>().try_into().unwrap()
}

/// Words that the page has in a sentence.
#[track_caller]
fn named(words: &'static str) -> &'static str {
    let page: Vec<_> = DOCS.split_whitespace().collect();
    assert!(page.join(" ").contains(&format!("`{words}`")), "the page names {words}");
    words
}

/// Gives the user `locks` these rights.
fn allow(server: &Server, rights: &[&str]) {
    let mut rights = rights.join(" ");
    if server.binary().version() >= (9, 0, 0) {
        rights = format!("{rights} {}", named("+delifeq"));
    }
    server.run::<()>(&format!("ACL SETUSER {rights}"));
}

fn binaries() -> Vec<ServerBinary> {
    [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten().collect()
}

fn as_user(urls: &[String], password: &str) -> Vec<String> {
    let named = |url: &String| url.replace("redis://", &format!("redis://locks:{password}@"));
    urls.iter().map(named).collect()
}

/// The holder's release lets the other one in without its having to look.
#[track_caller]
pub(crate) fn is_handed_over(mine: LockRequest, theirs: LockRequest) {
    must_be_prompt(NOTIFIED, "the release is notified", || {
        let guard = take(mine.clone());
        let waiting = Waiting::start(theirs.clone());
        waiting.must_wait();
        let start = std::time::Instant::now();
        guard.blocking_release().unwrap();
        waiting.must_have_it();
        let took = start.elapsed();
        waiting.finish();
        took
    });
}

fn each_kind(one: &Locks, other: &Locks) {
    let requests = |locks: &Locks| {
        let all = (0..4).map(|number| format!("all{number}"));
        [locks.write("shared"), locks.permit("pool", 1), locks.all(all)]
    };
    for (mine, theirs) in requests(one).into_iter().zip(requests(other)) {
        is_handed_over(mine, theirs);
    }
    let held = take(one.mutex("job"));
    let listed: Vec<_> = other.blocking_list("*").map(|status| status.unwrap().key).collect();
    assert_eq!(listed, ["job"]);
    assert!(other.blocking_force_release("job", "by hand").unwrap());
    eventually(PATIENCE, "the holder learns of its loss", || !is_held(&held));
}

/// A refusal that waiting does not cure.
#[track_caller]
fn wants_a_password(locks: &Locks) {
    let error = locks.mutex("other").wait(PATIENCE).blocking_acquire().map(drop).unwrap_err();
    let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert!(!source.is_retryable() && error.to_string().contains("password"), "{error}");
}

#[test]
fn a_mutex_is_shown_as_one_to_a_user_with_the_rights_for_mutexes() {
    let server = Server::start();
    let [mutexes, ..] = blocks();
    allow(&server, &[&mutexes]);
    let urls = as_user(&[server.url()], "secret");
    let locks = Locks::open(&urls[0]).unwrap();
    let held = take(locks.mutex("k"));
    let status = locks.blocking_status("k").unwrap();
    assert_eq!(status.kind, redis_locks::LockKind::Mutex, "{status:?}");
    assert_eq!(status.holders[0].token, *held.token());
}

#[test]
fn the_documented_rights_are_enough_in_a_cluster() {
    let [mutexes, kinds, _, cluster_rights] = blocks();
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).replicas(0).start();
        let urls = as_user(&cluster.urls(), "secret");
        let give = |rights: &[&str]| {
            cluster.nodes().iter().for_each(|node| allow(node.server(), rights));
        };
        give(&[&mutexes, &cluster_rights]);
        let open = || Locks::builder().cluster(&urls).open().unwrap();
        let (one, other) = (open(), open());
        for node in cluster.primaries() {
            let key = cluster.name_at(node, "job", |name| format!("lock:{name}"));
            is_handed_over(one.mutex(&key).fenced(), other.mutex(&key));
        }
        give(&[&mutexes, &kinds, &cluster_rights]);
        each_kind(&one, &other);
        drop((one, other));
        cluster.assert_clean();
        let wrong = as_user(&cluster.urls(), "wrong");
        wants_a_password(&Locks::builder().cluster(&wrong).open().unwrap());
    }
}

#[test]
fn the_documented_rights_are_enough_where_replicas_are_counted() {
    let [mutexes, _, _, cluster_rights] = blocks();
    let cluster = Cluster::builder().start();
    let urls = as_user(&cluster.urls(), "secret");
    let open = || Locks::builder().cluster(&urls).replicas(1).outage(ms(1_500)).open().unwrap();
    let give = |rights: &[&str]| {
        cluster.nodes().iter().for_each(|node| allow(node.server(), rights));
    };
    give(&[&mutexes, &cluster_rights]);
    let error = open().mutex("job").blocking_acquire().map(drop).unwrap_err();
    assert!(error.to_string().contains("wait"), "the right that is missing is named: {error}");
    give(&[&mutexes, &cluster_rights, named("+wait")]);
    let (one, other) = (open(), open());
    is_handed_over(one.mutex("job"), other.mutex("job"));
    drop((one, other));
    cluster.assert_clean();
}

#[test]
fn the_documented_rights_are_enough_with_sentinels() {
    let [mutexes, kinds, ..] = blocks();
    let group = Sentinel::start();
    for node in group.servers() {
        allow(node.server(), &[&mutexes, &kinds, named("+role")]);
    }
    let watcher = named("+sentinel +subscribe +ping &+switch-master");
    for node in group.sentinels() {
        node.server().run::<()>(&format!("ACL SETUSER watcher on >hush resetchannels {watcher}"));
    }
    let urls = as_user(&group.urls(), "secret");
    let open = || {
        let builder = Locks::builder().sentinel(&urls, group.name()).ttl(ms(20_000));
        builder.sentinel_auth("watcher", "hush").open().unwrap()
    };
    let (one, other) = (open(), open());
    is_handed_over(one.mutex("job").fenced(), other.mutex("job"));
    each_kind(&one, &other);
    let held = take(one.mutex("job"));
    group.until_replicated();
    let successor = group.fail_over();
    eventually(PATIENCE, "it is confirmed at the new primary", || held.blocking_verify().is_ok());
    held.blocking_release().unwrap();
    each_kind(&one, &other);
    drop((one, other));
    successor.server().assert_clean();
}

/// What the user of the locks may do after its password was changed, and changed back.
fn password_changes(builder: &dyn Fn() -> LocksBuilder, servers: &[&Server], set: &dyn Fn(&str)) {
    let locks = builder().ttl(ms(2_000)).open().unwrap();
    let held = take(locks.mutex("job"));
    set(">new <secret");
    holds_for(ms(3_000), "it is renewed over the connection that there is", || is_held(&held));
    held.blocking_verify().unwrap();
    for server in servers {
        server.run::<u64>("CLIENT KILL USER locks");
    }
    wants_a_password(&locks);
    eventually(PATIENCE, "what can't be renewed is lost at its end", || !is_held(&held));
    set(">secret <new");
    let works = || locks.mutex("job").wait(PATIENCE).blocking_acquire().is_ok();
    eventually(PATIENCE, "it works again", works);
}

#[test]
fn a_password_that_changes_while_connected_costs_what_cannot_be_renewed_and_no_more() {
    let [mutexes, _, _, cluster_rights] = blocks();
    let cluster = Cluster::builder().replicas(0).start();
    let urls = as_user(&cluster.urls(), "secret");
    let servers: Vec<_> = cluster.nodes().iter().map(testbed::Node::server).collect();
    servers.iter().for_each(|server| allow(server, &[&mutexes, &cluster_rights]));
    let set = |words: &str| {
        servers.iter().for_each(|server| server.run(&format!("ACL SETUSER locks {words}")));
    };
    password_changes(&|| Locks::builder().cluster(&urls), &servers, &set);
    cluster.assert_clean();

    let group = Sentinel::start();
    let urls = as_user(&group.urls(), "secret");
    let servers: Vec<_> = group.servers().iter().map(testbed::Node::server).collect();
    servers.iter().for_each(|server| allow(server, &[&mutexes, "+role"]));
    let set = |words: &str| {
        servers.iter().for_each(|server| server.run(&format!("ACL SETUSER locks {words}")));
    };
    password_changes(&|| Locks::builder().sentinel(&urls, group.name()), &servers, &set);
    group.primary().server().assert_clean();
}

#[test]
fn locks_go_on_while_the_sentinels_want_another_password() {
    let group = Sentinel::start();
    let set = |words: &str| {
        for node in group.sentinels() {
            node.server().run::<()>(&format!("ACL SETUSER watcher {words}"));
            node.server().run::<u64>("CLIENT KILL USER watcher");
        }
    };
    set("on >hush ~* &* +@all");
    let locks = Locks::builder().sentinel(group.urls(), group.name()).ttl(ms(6_000));
    let locks = locks.sentinel_auth("watcher", "hush").open().unwrap();
    let pair = || -> Result<(), LockError> {
        locks.mutex("other").blocking_acquire().and_then(Guard::blocking_release)
    };
    let held = take(locks.mutex("job"));
    set(">new <hush");
    holds_for(ms(3_000), "the primary is known", || {
        pair().expect("it is where it was");
        true
    });
    held.blocking_verify().unwrap();
    set(">hush <new");
    group.until_replicated();
    let successor = group.fail_over();
    eventually(PATIENCE, "it is confirmed at the new primary", || held.blocking_verify().is_ok());
    held.blocking_release().unwrap();
    pair().unwrap();
    successor.server().assert_clean();
}
