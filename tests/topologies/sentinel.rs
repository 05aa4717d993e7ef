//! Locks on a primary that sentinels replace.

use redis_locks::{LockError, Locks, NodeRole, Scripting, Topology};
use testbed::{Sentinel, eventually};

use crate::arena::{PATIENCE, ms, take};
use crate::{give_back_unless_expired, is_held};

fn url(group: &Sentinel) -> String {
    let hosts: Vec<_> =
        group.sentinels().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis-sentinel://{}/{}", hosts.join(","), group.name())
}

#[test]
fn a_held_lock_survives_an_orderly_fail_over_and_the_next_one_is_acquired_after_it() {
    let group = Sentinel::start();
    let locks =
        Locks::builder().sentinel(group.urls(), group.name()).ttl(ms(6_000)).open().unwrap();
    let guard = take(locks.mutex("job"));
    group.until_replicated();
    let status = locks.blocking_status("job").unwrap();
    assert_eq!(status.server.topology, Topology::Sentinel);
    let before = group.primary().port();
    assert_eq!(status.server.nodes.len(), 1);
    assert_eq!(status.server.nodes[0].address, format!("127.0.0.1:{before}"));
    assert_eq!(status.server.nodes[0].role, NodeRole::Primary);
    assert!(status.server.nodes[0].version.is_some());
    let successor = group.fail_over();
    eventually(PATIENCE, "the locks follow", || {
        locks.blocking_status("job").is_ok_and(|status| {
            status.server.nodes[0].address == format!("127.0.0.1:{}", successor.port())
        })
    });
    let left = || successor.server().pttl("lock:job").unwrap_or_default();
    // Without a renewal the ttl only falls.
    let before = left();
    eventually(PATIENCE, "it is renewed at the new primary", || left() > before);
    assert!(is_held(&guard));
    guard.blocking_release().unwrap();
    take(locks.mutex("job")).blocking_release().unwrap();
    successor.server().assert_clean();
}

#[test]
fn sentinels_that_want_a_password_have_one_of_their_own() {
    let group = Sentinel::builder().sentinels(1).start();
    let sentinel = group.sentinels()[0].server();
    sentinel.run::<()>("ACL SETUSER watcher on >hush ~* &* +@all");
    sentinel.run::<()>("ACL SETUSER default off");
    let open = |auth: Option<(&str, &str)>| {
        let builder = Locks::builder().url(url(&group)).outage(ms(1_000));
        match auth {
            Some((user, password)) => builder.sentinel_auth(user, password),
            None => builder,
        }
        .open()
        .unwrap()
    };
    for auth in [None, Some(("watcher", "wrong"))] {
        let error = open(auth).mutex("job").blocking_acquire().map(drop).unwrap_err();
        let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
        assert!(!source.is_retryable() && error.to_string().contains("password"), "{error}");
    }
    let locks = open(Some(("watcher", "hush")));
    take(locks.mutex("job")).blocking_release().unwrap();
    group.primary().server().assert_clean();
}

#[test]
fn f7_f12_an_old_primary_that_wakes_starts_and_extends_nothing() {
    old_primary_wakes(Scripting::Auto);
}

/// When it wakes, it has transactions of unknown outcome.
#[test]
fn f7_f12_the_same_without_scripts() {
    old_primary_wakes(Scripting::Never);
}

fn old_primary_wakes(scripting: Scripting) {
    let group = Sentinel::start();
    let open = || {
        let builder = Locks::builder().sentinel(group.urls(), group.name()).ttl(ms(3_000));
        builder.scripting(scripting).command_timeout(ms(1_000)).open().unwrap()
    };
    let (one, other) = (open(), open());
    // Without scripts, releases that come one at a time have a connection of their own by then.
    (0..20).for_each(|_| take(one.mutex("job")).blocking_release().unwrap());
    let (held, given_back) = (take(one.mutex("job")), take(one.mutex("given back")));
    group.until_replicated();
    let old = group.primary();
    old.server().freeze();
    let releasing = std::thread::spawn(move || given_back.blocking_release());
    let late = std::thread::spawn({
        let locks = one.clone();
        move || take(locks.mutex("late").wait(PATIENCE))
    });
    let successor = group.until_replaced(old);
    // Until it has learned which server is the primary now, it can only use the old one.
    take(one.mutex("heard").wait(PATIENCE)).blocking_release().unwrap();
    old.server().thaw();
    let late = late.join().unwrap();
    let value = successor.server().get("lock:late").expect("it stands at the new primary");
    assert!(value.starts_with(&late.token().to_string()), "{value}");
    late.blocking_release().unwrap();
    if let Err(error) = releasing.join().unwrap() {
        assert!(error.is_lost() || matches!(error, LockError::Backend { .. }), "{error}");
    }
    give_back_unless_expired(held);
    let next = other.mutex("job").wait(PATIENCE).blocking_acquire().unwrap();
    assert!(successor.server().exists("lock:job"));
    next.blocking_release().unwrap();
    eventually(PATIENCE, "it was given back", || !successor.server().exists("lock:given back"));
    eventually(PATIENCE, "the old one follows", || !old.is_primary());
    drop((one, other));
    successor.server().assert_clean();
}
