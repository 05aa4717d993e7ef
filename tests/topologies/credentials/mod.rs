//! Credentials that change while locks are held.

mod gate;
mod trouble;
mod vault;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis_locks::{Locks, LocksBuilder, Scripting};
use testbed::{Cluster, Sentinel, Server, ServerBinary, eventually};

use crate::arena::{PATIENCE, ms, take};
use crate::is_held;
use crate::rights::is_handed_over;
#[cfg(feature = "rustls")]
use crate::tls;
use gate::Gate;
use vault::{PERIOD, Vault, connections};

/// Locks that are held, and their manager and another one.
struct Crowd {
    one: Locks,
    other: Locks,
    held: Vec<redis_locks::Guard>,
}

impl Crowd {
    fn gather(count: usize, open: impl Fn() -> LocksBuilder) -> Self {
        let open = || open().ttl(ms(6_000)).open().unwrap();
        let (one, other) = (open(), open());
        let held = (0..count).map(|number| take(one.mutex(format!("held{number}")))).collect();
        Self { one, other, held }
    }

    fn all_are_held(&self) {
        let lost = self.held.iter().filter(|guard| !is_held(guard)).count();
        assert_eq!(lost, 0, "of {} locks", self.held.len());
    }

    fn give_back(self) {
        self.all_are_held();
        self.held.iter().for_each(|guard| guard.blocking_verify().unwrap());
        self.held.into_iter().for_each(|guard| guard.blocking_release().unwrap());
    }
}

/// Hands locks over for this long while the password changes and a gate closes what has not followed.
fn survive(
    time: Duration,
    count: usize,
    server: Server,
    terms: impl Fn(LocksBuilder) -> LocksBuilder,
) {
    let vault = Vault::of("app", [&server]);
    let gate = Gate::before(server.port(), &vault);
    vault.keep_changing();
    let open = || terms(Locks::builder().url(gate.url()).credentials(vault.provider()));
    let crowd = Crowd::gather(count, open);
    let start = Instant::now();
    while start.elapsed() < time {
        is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
        is_handed_over(crowd.other.mutex("job"), crowd.one.mutex("job"));
        crowd.all_are_held();
    }
    // Connections are closed with the last of their managers.
    let managers = (crowd.one.clone(), crowd.other.clone());
    crowd.give_back();
    vault.stop();
    let (mut long, mut fewest, mut most) = (0, usize::MAX, 0);
    gate.each(|session| {
        assert!(!session.has_expired, "one of {} passwords was not followed", session.passwords);
        // Those for messages begin with the first wait.
        if session.is_open && session.begun.elapsed() >= time * 3 / 4 {
            long += 1;
            fewest = fewest.min(session.passwords);
            most = most.max(session.passwords);
        }
    });
    let issued = vault.issued();
    drop(managers);
    println!("{long} connections sent {fewest} to {most} of {issued} passwords");
    // Each of two managers has one for commands and one for messages.
    assert!(long >= 4, "the connections went on: {long}");
    assert!(fewest >= issued / 2 && most <= issued, "{fewest} to {most} of {issued}");
    server.assert_clean();
}

fn users_are_known() -> Option<Server> {
    let binary = ServerBinary::any();
    (binary.version() >= (6, 2, 0)).then(|| Server::builder().binary(binary).start())
}

#[test]
fn cr1_no_lock_is_lost_and_no_message_missed_while_the_password_changes() {
    let Some(server) = users_are_known() else { return };
    survive(ms(10_000), 1_000, server, |builder| builder);
}

#[test]
#[ignore = "it takes a minute; `cargo xtask ci slow-tests` runs it"]
fn cr1_no_lock_is_lost_in_a_minute_of_changing_passwords() {
    let Some(server) = users_are_known() else { return };
    survive(ms(60_000), 1_000, server, |builder| builder);
}

#[test]
fn cr1_without_scripts_connections_for_transactions_follow_the_password() {
    let Some(server) = users_are_known() else { return };
    survive(ms(8_000), 20, server, |builder| builder.scripting(Scripting::Never));
}

#[test]
fn cr1_the_connection_that_waits_for_replicas_follows_the_password() {
    let (Some(primary), Some(replica)) = (users_are_known(), users_are_known()) else { return };
    replica.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    let linked = || replica.info("replication", "master_link_status").as_deref() == Some("up");
    eventually(PATIENCE, "the replica is linked", linked);
    survive(ms(8_000), 20, primary, |builder| builder.replicas(1));
}

#[test]
fn cr2_no_lock_is_lost_when_the_sessions_of_the_user_are_ended() {
    let Some(server) = users_are_known() else { return };
    let vault = Vault::of("app", [&server]);
    vault.keep_changing();
    let open = || Locks::builder().url(server.url()).credentials(vault.provider());
    let crowd = Crowd::gather(1_000, open);
    for _ in 0..4 {
        assert!(server.run::<u64>("CLIENT KILL USER app") > 0);
        let start = Instant::now();
        while start.elapsed() < ms(2_500) {
            let guard = take(crowd.one.mutex("job").wait(PATIENCE));
            let (waiting, theirs) = (crowd.other.clone(), PATIENCE);
            let waiting = std::thread::spawn(move || take(waiting.mutex("job").wait(theirs)));
            guard.blocking_release().unwrap();
            waiting.join().unwrap().blocking_release().unwrap();
        }
        crowd.all_are_held();
    }
    crowd.give_back();
    vault.stop();
    vault.was_asked_with_pauses();
    server.assert_clean();
}

/// The connections of `user` to these servers go on while the password changes three times.
fn follow(vault: &Vault, servers: &[&Server], user: &str) {
    let logins = || {
        let counts = servers.iter().map(|server| server.command_counts());
        counts.filter_map(|counts| counts.get("auth").copied()).sum::<u64>()
    };
    let (before, first) = (of_user(servers, user), logins());
    let count: usize = before.iter().map(BTreeSet::len).sum();
    assert!(count >= 4, "{before:?}");
    for _ in 0..3 {
        vault.change();
        std::thread::sleep(PERIOD);
    }
    for (before, after) in before.iter().zip(of_user(servers, user)) {
        assert!(before.is_subset(&after), "{before:?} {after:?}");
    }
    let logins = usize::try_from(logins() - first).unwrap();
    println!("{count} connections of {user} sent AUTH {logins} times");
    // Sentinels count no commands.
    let counts = servers.iter().any(|server| !server.command_counts().is_empty());
    assert!(!counts || logins >= 2 * count, "{logins} of {count} connections");
}

fn of_user(servers: &[&Server], user: &str) -> Vec<BTreeSet<u64>> {
    servers.iter().map(|server| connections(server, user)).collect()
}

#[test]
fn cr3_the_connections_to_each_node_of_a_cluster_follow_the_password() {
    let Some(_) = users_are_known() else { return };
    let cluster = Cluster::builder().replicas(0).start();
    let servers: Vec<_> = cluster.nodes().iter().map(testbed::Node::server).collect();
    let vault = Vault::of("app", servers.iter().copied());
    let open = || Locks::builder().cluster(cluster.urls()).credentials(vault.provider());
    let crowd = Crowd::gather(50, open);
    is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
    follow(&vault, &servers, "app");
    is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
    crowd.give_back();
    cluster.assert_clean();
}

#[cfg(feature = "rustls")]
#[test]
fn cr3_the_connections_over_tls_follow_the_password() {
    let Some(certificates) = tls::certificates() else { return };
    for binary in tls::binaries().into_iter().filter(|binary| binary.version() >= (6, 2, 0)) {
        let server = Server::builder().binary(binary).tls(&certificates).start();
        let vault = Vault::of("app", [&server]);
        let open = || {
            let builder = Locks::builder().url(server.tls_url()).credentials(vault.provider());
            tls::trusting(builder, &certificates)
        };
        let crowd = Crowd::gather(50, open);
        is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
        follow(&vault, &[&server], "app");
        is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
        crowd.give_back();
        server.assert_clean();
    }
}

#[test]
fn cr3_the_connections_to_each_node_of_a_quorum_follow_the_password() {
    let Some(first) = users_are_known() else { return };
    let nodes = [first, Server::start(), Server::start()];
    let servers: Vec<_> = nodes.iter().collect();
    let vault = Vault::of("app", servers.iter().copied());
    let urls: Vec<_> = nodes.iter().map(Server::url).collect();
    let open = || {
        let builder = Locks::builder().quorum(&urls).rejoin(Duration::ZERO);
        builder.credentials(vault.provider())
    };
    let crowd = Crowd::gather(50, open);
    is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
    follow(&vault, &servers, "app");
    is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
    crowd.give_back();
}

#[test]
fn cr3_the_connections_to_the_sentinels_and_to_the_primary_follow_their_passwords() {
    let Some(_) = users_are_known() else { return };
    let group = Sentinel::start();
    let servers: Vec<_> = group.servers().iter().map(testbed::Node::server).collect();
    let sentinels: Vec<_> = group.sentinels().iter().map(testbed::Node::server).collect();
    let vault = Vault::of("app", servers.iter().copied());
    let watch = Vault::of("watcher", sentinels.iter().copied());
    let open = || {
        let builder = Locks::builder().sentinel(group.urls(), group.name());
        builder.credentials(vault.provider()).sentinel_credentials(watch.provider())
    };
    let crowd = Crowd::gather(50, open);
    is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
    follow(&vault, &servers, "app");
    follow(&watch, &sentinels, "watcher");
    is_handed_over(crowd.one.mutex("job"), crowd.other.mutex("job"));
    crowd.all_are_held();
    group.until_replicated();
    let successor = group.fail_over();
    let confirmed = || crowd.held.iter().all(|guard| guard.blocking_verify().is_ok());
    eventually(PATIENCE, "they are confirmed at the new primary", confirmed);
    crowd.give_back();
    successor.server().assert_clean();
}
