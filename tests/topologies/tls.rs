//! Servers that are reached over TLS, with certificates that only the user knows to be good.

use std::fs;

use redis_locks::{ConfigError, LockError, LockRequest, Locks, LocksBuilder, Scripting, Topology};
use testbed::{
    Certificates, Cluster, FailOver, Proxy, Sentinel, Server, ServerBinary, eventually, holds_for,
};

use crate::arena::{PATIENCE, Waiting, ms, take};
use crate::is_held;

/// Servers that differ, as far as they speak TLS.
pub(crate) fn binaries() -> Vec<ServerBinary> {
    let each = [Some(ServerBinary::any()), ServerBinary::valkey(9)].into_iter().flatten();
    let (all, others): (Vec<_>, Vec<_>) = each.partition(ServerBinary::speaks_tls);
    for binary in others {
        testbed::report_skipped(&format!("{binary} was built without TLS"));
    }
    all
}

pub(crate) fn certificates() -> Option<Certificates> {
    let made = Certificates::new();
    if made.is_none() {
        testbed::report_skipped("there is no openssl");
    }
    made
}

/// With the authority that has signed what the servers show.
pub(crate) fn trusting(builder: LocksBuilder, certificates: &Certificates) -> LocksBuilder {
    builder.tls_authority(fs::read(certificates.authority_file()).unwrap()).outage(ms(5_000))
}

/// Why it can't be used.
#[track_caller]
fn refusal(locks: &Locks) -> String {
    let error = locks.mutex("job").wait(PATIENCE).blocking_acquire().map(drop).unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    error.to_string()
}

fn pair(locks: &Locks) {
    take(locks.mutex("job")).blocking_release().unwrap();
}

#[test]
fn only_the_authority_that_was_named_is_trusted_and_only_for_the_servers_name() {
    let Some(good) = certificates() else { return };
    let other = Certificates::new().unwrap();
    let elsewhere = Certificates::naming("subjectAltName=DNS:elsewhere\n").unwrap();
    for binary in binaries() {
        let server = Server::builder().binary(binary.clone()).tls(&good).start();
        let locks = || Locks::builder().url(server.tls_url()).outage(ms(1_000));
        pair(&trusting(locks(), &good).open().unwrap());
        let by_name = server.tls_url().replace("127.0.0.1", "localhost");
        pair(&trusting(Locks::builder().url(by_name), &good).open().unwrap());
        for locks in [locks(), trusting(locks(), &other)] {
            let said = refusal(&locks.outage(ms(1_000)).open().unwrap());
            assert!(said.contains("certificate"), "{said}");
        }
        let misnamed = Server::builder().binary(binary).tls(&elsewhere).start();
        let locks = trusting(Locks::builder().url(misnamed.tls_url()), &elsewhere);
        let said = refusal(&locks.outage(ms(1_000)).open().unwrap());
        assert!(said.contains("certificate"), "{said}");
        assert!(misnamed.keys().is_empty());
        server.assert_clean();
    }
}

#[test]
fn a_client_shows_the_certificate_that_it_was_given() {
    let Some(certificates) = certificates() else { return };
    for binary in binaries() {
        let server = Server::builder().binary(binary).tls(&certificates).start();
        server.run::<()>("CONFIG SET tls-auth-clients yes");
        let without = || trusting(Locks::builder().url(server.tls_url()), &certificates);
        refusal(&without().outage(ms(1_000)).open().unwrap());
        let own = fs::read(certificates.client_file()).unwrap();
        let key = fs::read(certificates.client_key_file()).unwrap();
        pair(&without().tls_identity(own.clone(), key.clone()).open().unwrap());
        // Each connection needs the certificate: those of transactions, and that of releases.
        let by_transactions = without().tls_identity(own, key).scripting(Scripting::Never);
        let by_transactions = by_transactions.open().unwrap();
        (0..50).for_each(|_| pair(&by_transactions));
        server.assert_clean();
    }
}

/// Locks of a server behind a proxy, over TLS.
fn behind(proxy: &Proxy, certificates: &Certificates) -> Locks {
    let url = format!("rediss://127.0.0.1:{}", proxy.port());
    trusting(Locks::builder().url(url), certificates).ttl(ms(60_000)).open().unwrap()
}

/// Takes the lock that `request` is for, and passes it on to a waiter of `other`.
fn hand_over(request: LockRequest, other: &Locks) {
    let guard = take(request);
    let waiting = Waiting::start(other.mutex("job"));
    waiting.must_wait();
    guard.blocking_verify().unwrap();
    guard.blocking_release().unwrap();
    waiting.must_have_it();
    waiting.finish();
}

#[test]
fn records_that_arrive_byte_by_byte_are_put_together() {
    let Some(certificates) = certificates() else { return };
    for binary in binaries() {
        let server = Server::builder().binary(binary).tls(&certificates).start();
        let proxy = Proxy::to(server.tls_port().unwrap());
        let (locks, other) = (behind(&proxy, &certificates), behind(&proxy, &certificates));
        pair(&locks);
        proxy.split(1);
        hand_over(locks.mutex("job"), &other);
        drop((locks, other));
        server.assert_clean();
    }
}

#[test]
fn more_than_a_socket_takes_is_sent_when_the_server_reads_again() {
    const TASKS: usize = 12_000;
    let Some(certificates) = certificates() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for binary in binaries() {
        let server = Server::builder().binary(binary).tls(&certificates).start();
        let url = Locks::builder().url(server.tls_url()).command_timeout(PATIENCE);
        let locks = trusting(url, &certificates).ttl(PATIENCE * 2).outage(PATIENCE).open().unwrap();
        pair(&locks);
        server.freeze();
        // Some 12 MB.
        let keys = (0..TASKS).map(|number| format!("{number}:{}", "k".repeat(900)));
        let ask = |key| runtime.spawn(locks.mutex(key).wait(PATIENCE).acquire());
        let asking: Vec<_> = keys.map(ask).collect();
        holds_for(ms(300), "no caller is answered", || asking.iter().all(|it| !it.is_finished()));
        server.thaw();
        runtime.block_on(async {
            let mut guards = Vec::new();
            for asking in asking {
                guards.push(asking.await.unwrap().unwrap());
            }
            for guard in guards {
                guard.release().await.unwrap();
            }
        });
        drop(locks);
        server.assert_clean();
    }
}

#[test]
fn a_client_with_certificates_of_its_own_is_used_as_it_is() {
    let Some(certificates) = certificates() else { return };
    for binary in binaries() {
        let server = Server::builder().binary(binary).tls(&certificates).start();
        let root_cert = Some(fs::read(certificates.authority_file()).unwrap());
        let known = redis::TlsCertificates { client_tls: None, root_cert };
        let client = redis::Client::build_with_tls(server.tls_url(), known).unwrap();
        let open = || Locks::builder().client(client.clone()).ttl(ms(20_000)).open().unwrap();
        let (one, other) = (open(), open());
        hand_over(one.mutex("job").fenced(), &other);
        drop((one, other));
        server.assert_clean();
    }
}

#[test]
fn transactions_and_waits_for_replicas_go_over_tls() {
    let Some(certificates) = certificates() else { return };
    for binary in binaries() {
        let server = Server::builder().binary(binary.clone()).tls(&certificates).start();
        let replica = Server::builder().binary(binary).start();
        replica.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
        let linked = || replica.info("replication", "master_link_status").as_deref() == Some("up");
        eventually(PATIENCE, "the replica is linked", linked);
        let open = |(scripting, replicas)| {
            let locks = Locks::builder().url(server.tls_url()).scripting(scripting);
            trusting(locks, &certificates).replicas(replicas).ttl(ms(20_000)).open().unwrap()
        };
        let each = [(Scripting::Never, 0), (Scripting::Auto, 1), (Scripting::Never, 1)].map(open);
        for (at, from) in each.iter().enumerate() {
            let to = &each[(at + 1) % each.len()];
            let guard = take(from.mutex("job").fenced());
            assert!(at == 0 || replica.exists("lock:job"), "the replica has it first");
            let waiting = Waiting::start(to.mutex("job"));
            waiting.must_wait();
            server.run::<()>("CLIENT KILL TYPE normal SKIPME yes");
            eventually(PATIENCE, "it is confirmed", || guard.blocking_verify().is_ok());
            guard.blocking_release().unwrap();
            waiting.must_have_it();
            waiting.finish();
        }
        drop(each);
        server.assert_clean();
    }
}

#[test]
fn a_connection_that_ends_in_the_middle_of_a_record_is_made_again() {
    let Some(certificates) = certificates() else { return };
    for binary in binaries() {
        let server = Server::builder().binary(binary).tls(&certificates).start();
        let proxy = Proxy::to(server.tls_port().unwrap());
        let locks = behind(&proxy, &certificates);
        let guard = take(locks.mutex("job"));
        for bytes in [1, 7, 40] {
            proxy.cut_after(bytes);
            if let Err(error) = guard.blocking_verify() {
                assert!(!error.is_lost(), "{error}");
            }
            proxy.pass();
            eventually(PATIENCE, "it is confirmed", || guard.blocking_verify().is_ok());
        }
        assert!(is_held(&guard));
        guard.blocking_release().unwrap();
        drop(locks);
        server.assert_clean();
    }
}

#[test]
fn certificates_that_mean_nothing_are_refused_before_anybody_is_asked() {
    let cause = |builder: LocksBuilder| match builder.open() {
        Err(LockError::InvalidConfig { cause, .. }) => cause,
        other => panic!("{other:?}"),
    };
    let plain = Locks::builder().url("redis://a").tls_authority("");
    assert!(matches!(cause(plain), ConfigError::Requires { needs: "TLS", .. }));
    let memory = Locks::builder().in_memory().tls_identity("", "");
    assert!(matches!(cause(memory), ConfigError::Requires { needs: "TLS", .. }));
    let cluster = Locks::builder().cluster(["redis://a", "redis://b"]).tls_authority("");
    assert!(matches!(cause(cluster), ConfigError::Requires { needs: "TLS", .. }));
    let garbage = Locks::builder().url("rediss://a").tls_identity("what", "ever");
    assert!(matches!(cause(garbage), ConfigError::BadCertificate { .. }));
}

#[test]
fn a_cluster_over_tls_has_every_kind_of_lock_while_its_slots_move_and_a_replica_takes_over() {
    let Some(certificates) = certificates() else { return };
    for binary in binaries() {
        let cluster = Cluster::builder().binary(binary).tls(&certificates).start();
        let hosts = cluster.urls().join(",").replace("rediss://", "");
        let by_url = Locks::builder().url(format!("rediss-cluster://{hosts}"));
        let one = trusting(by_url, &certificates).ttl(ms(20_000)).open().unwrap();
        let other = trusting(Locks::builder().cluster(cluster.urls()), &certificates);
        let other = other.ttl(ms(20_000)).open().unwrap();
        let requests = |locks: &Locks| {
            let all = (0..6).map(|number| format!("all{number}"));
            [
                locks.mutex("mutex").fenced(),
                locks.write("shared"),
                locks.permit("pool", 1),
                locks.all(all),
            ]
        };
        let exchange = || {
            for (mine, theirs) in requests(&one).into_iter().zip(requests(&other)) {
                let guard = take(mine);
                let waiting = Waiting::start(theirs);
                waiting.must_wait();
                guard.blocking_release().unwrap();
                waiting.must_have_it();
                waiting.finish();
            }
        };
        exchange();
        assert_eq!(one.blocking_status("mutex").unwrap().server.topology, Topology::Cluster);
        let slot = cluster.slot_of("lock:mutex");
        let held = take(one.mutex("mutex"));
        let from = cluster.owner(slot);
        let to = cluster.primaries().into_iter().find(|node| node.id() != from.id()).unwrap();
        cluster.move_slots(slot..=slot, to);
        held.blocking_verify().unwrap();
        cluster.fail_over(cluster.replica_of(cluster.owner(slot)), FailOver::Plain);
        eventually(PATIENCE, "it is confirmed at the new primary", || {
            held.blocking_verify().is_ok()
        });
        held.blocking_release().unwrap();
        exchange();
        drop((one, other));
        cluster.assert_clean();
        let stranger = Locks::builder().cluster(cluster.urls()).outage(ms(1_000)).open().unwrap();
        let said = refusal(&stranger);
        assert!(said.contains("certificate"), "{said}");
    }
}

#[test]
fn sentinels_and_their_servers_are_both_reached_over_tls() {
    let Some(certificates) = certificates() else { return };
    for binary in binaries() {
        let group = Sentinel::builder().binary(binary).tls(&certificates).start();
        let hosts = group.urls().join(",").replace("rediss://", "");
        let by_url = format!("rediss-sentinel://{hosts}/{}", group.name());
        let open = || trusting(Locks::builder().url(&by_url), &certificates).ttl(ms(20_000));
        let (one, other) = (open().open().unwrap(), open().open().unwrap());
        let guard = take(one.mutex("job").fenced());
        let waiting = Waiting::start(other.mutex("job"));
        waiting.must_wait();
        guard.blocking_release().unwrap();
        waiting.must_have_it();
        waiting.finish();
        let held = take(one.mutex("job"));
        group.until_replicated();
        let successor = group.fail_over();
        eventually(PATIENCE, "it is confirmed at the new primary", || {
            held.blocking_verify().is_ok()
        });
        assert!(is_held(&held) && successor.server().exists("lock:job"));
        held.blocking_release().unwrap();
        drop((one, other));
        successor.server().assert_clean();
        let stranger = Locks::builder().url(&by_url).outage(ms(1_000)).open().unwrap();
        let said = refusal(&stranger);
        assert!(said.contains("certificate"), "{said}");
    }
}
