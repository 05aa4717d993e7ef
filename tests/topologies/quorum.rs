//! Locks on a quorum of independent servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis_locks::{ConfigError, Guard, LockError, Locks, LocksBuilder, NoQuorum, Scripting, Vote};
use testbed::{Proxy, Server, Turns, eventually, holds_for};

use crate::arena::{PATIENCE, ms, take};
use crate::is_held;

/// So many servers, each behind a network of its own.
pub(crate) struct Nodes {
    pub(crate) servers: Vec<Server>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Nodes {
    pub(crate) fn start(count: usize) -> Self {
        Self::of((0..count).map(|_| Server::start()).collect())
    }

    pub(crate) fn of(servers: Vec<Server>) -> Self {
        let proxies = servers.iter().map(|server| Proxy::to(server.port())).collect();
        Self { servers, proxies }
    }

    /// Locks of nodes that vote at once, since they have all just started.
    pub(crate) fn locks(&self) -> LocksBuilder {
        let urls = self.proxies.iter().map(Proxy::url);
        Locks::builder().quorum(urls).rejoin(Duration::ZERO).ttl(ms(3_000)).outage(ms(1_500))
    }

    /// How many nodes have this key.
    pub(crate) fn having(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| server.is_live() && server.exists(key)).count()
    }

    pub(crate) fn assert_clean(&self) {
        eventually(PATIENCE, "every node is clean", || {
            self.servers.iter().all(|server| server.keys().iter().all(|key| key.contains(":f")))
        });
    }
}

fn no_quorum(error: &LockError) -> NoQuorum {
    let LockError::Backend { source, .. } = error else { panic!("{error:?}") };
    assert!(source.is_retryable(), "{error}");
    source.no_quorum().unwrap_or_else(|| panic!("{error}")).clone()
}

pub(crate) fn votes(error: &LockError) -> Vec<Vote> {
    no_quorum(error).nodes.into_iter().map(|node| node.vote).collect()
}

#[test]
fn a_lock_is_on_all_nodes_and_leaves_nothing() {
    for count in [3, 5] {
        let nodes = Nodes::start(count);
        let locks = nodes.locks().open().unwrap();
        let guard = take(locks.mutex("job"));
        eventually(PATIENCE, "all have it", || nodes.having("lock:job") == count);
        let other = nodes.locks().open().unwrap();
        let busy = other.mutex("job").no_wait().blocking_acquire().map(drop).unwrap_err();
        assert!(busy.is_busy(), "{busy}");
        guard.blocking_verify().unwrap();
        guard.blocking_release().unwrap();
        take(other.mutex("job")).blocking_release().unwrap();
        nodes.assert_clean();
    }
}

#[test]
fn a_minority_that_is_down_or_frozen_costs_nothing() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().open().unwrap();
    let held = take(locks.mutex("held").ttl(ms(1_500)));
    let fifty_pairs = || {
        let start = Instant::now();
        for _ in 0..50 {
            take(locks.mutex("job")).blocking_release().unwrap();
        }
        start.elapsed()
    };
    let mut turns = Turns::of("the frozen node is not waited for");
    while turns.go_on() {
        nodes.servers[0].thaw();
        eventually(PATIENCE, "all have it", || nodes.having("lock:held") == 3);
        nodes.servers[0].freeze();
        turns.must_be_below(ms(1_000), fifty_pairs());
    }
    holds_for(ms(3_200), "it is renewed", || is_held(&held));
    nodes.servers[0].thaw();
    // The next renewal brings the lock back to it, and the one after that counts it.
    eventually(PATIENCE, "it has the lock again", || nodes.having("lock:held") == 3);
    let mut turns = Turns::of("nor is the dead one");
    while turns.go_on() {
        if !nodes.servers[1].is_live() {
            nodes.servers[1].restart();
        }
        eventually(PATIENCE, "all have it", || nodes.having("lock:held") == 3);
        nodes.servers[1].kill9();
        turns.must_be_below(ms(2_000), fifty_pairs());
    }
    let fresh = nodes.locks().open().unwrap();
    take(fresh.mutex("job")).blocking_release().unwrap();
    holds_for(ms(3_200), "it is renewed", || is_held(&held));
    held.blocking_release().unwrap();
    eventually(PATIENCE, "nothing is left", || nodes.having("lock:job") == 0);
}

#[test]
fn without_a_majority_the_error_says_what_each_node_said() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().open().unwrap();
    take(locks.mutex("job")).blocking_release().unwrap();
    nodes.servers[0].kill9();
    nodes.servers[1].freeze();
    let start = Instant::now();
    let error = locks.mutex("job").blocking_acquire().map(drop).unwrap_err();
    assert!(start.elapsed() < ms(4_000), "{:?}", start.elapsed());
    let NoQuorum { granted, needed, .. } = no_quorum(&error);
    assert_eq!((granted, needed), (1, 2), "{error}");
    let said = votes(&error);
    assert!(matches!(&said[0], Vote::Unreachable { .. }), "{said:?}");
    assert!(matches!(&said[1], Vote::Late | Vote::Unreachable { .. }), "{said:?}");
    assert_eq!(said[2], Vote::Voted);
    let text = error.to_string();
    assert!(text.contains("1 of the 2") && text.contains("unreachable"), "{text}");
    eventually(PATIENCE, "the vote is given back", || !nodes.servers[2].exists("lock:job"));
    nodes.servers[1].thaw();
    eventually(PATIENCE, "it works again", || locks.mutex("job").blocking_acquire().is_ok());
    eventually(PATIENCE, "nothing is left", || nodes.having("lock:job") == 0);
}

#[test]
fn a_majority_is_enough_to_start_and_less_is_not() {
    let nodes = Nodes::start(3);
    nodes.servers[1].kill9();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(nodes.locks().connect()).unwrap();
    take(locks.mutex("job")).blocking_release().unwrap();
    nodes.servers[2].kill9();
    let error = runtime.block_on(nodes.locks().connect()).unwrap_err();
    assert!(matches!(&votes(&error)[..], [Vote::Voted, _, Vote::Unreachable { .. }]), "{error}");
    nodes.servers[1].restart();
    eventually(PATIENCE, "it works again", || locks.mutex("job").blocking_acquire().is_ok());
    eventually(PATIENCE, "nothing is left", || nodes.having("lock:job") == 0);
}

#[test]
fn what_a_quorum_does_not_offer_is_refused() {
    let nodes = Nodes::start(3);
    let invalid = |locks: LocksBuilder| match locks.open().map(drop).unwrap_err() {
        LockError::InvalidConfig { cause, .. } => cause,
        other => panic!("{other:?}"),
    };
    let urls = |count: usize| (0..count).map(|at| format!("redis://127.0.0.1:{}", 1 + at));
    for count in [0, 1, 2, 4, 6] {
        let cause = invalid(Locks::builder().quorum(urls(count)));
        assert!(
            matches!(cause, ConfigError::QuorumSize { given, .. } if given == count),
            "{cause:?}"
        );
    }
    let other = ["redis://127.0.0.1:1/0", "redis://127.0.0.1:2/0", "redis://127.0.0.1:3/1"];
    let cause = invalid(Locks::builder().quorum(other));
    assert!(cause.to_string().contains("same database"), "{cause}");
    for wrong in [nodes.locks().replicas(1), nodes.locks().scripting(Scripting::Never)] {
        assert!(matches!(invalid(wrong), ConfigError::NotOnQuorum { .. }));
    }
    let used = |locks: LocksBuilder| {
        let error = locks.open().unwrap().mutex("k").no_wait().blocking_acquire().unwrap_err();
        let LockError::InvalidConfig { cause, .. } = error else { panic!("{error:?}") };
        cause
    };
    let cause = used(nodes.locks().rejoin(ms(2_000)));
    assert!(matches!(cause, ConfigError::LeaseBeyondRejoin { .. }), "{cause:?}");
    let cause = used(nodes.locks().rejoin(ms(4_000)).margin(ms(2_000)));
    assert!(matches!(cause, ConfigError::LeaseBeyondRejoin { .. }), "{cause:?}");
    let short = nodes.locks().rejoin(ms(2_000)).open().unwrap();
    let error = short.mutex("k").ttl(ms(1_500)).no_wait().blocking_acquire().map(drop);
    assert!(!matches!(error, Err(LockError::InvalidConfig { .. })), "{error:?}");
    let cause = invalid(Locks::builder().url("redis://127.0.0.1").rejoin(ms(1)));
    assert!(matches!(cause, ConfigError::Requires { option: "rejoin", .. }), "{cause:?}");
    let locks = nodes.locks().rejoin(ms(60_000)).linger(ms(1_000)).open().unwrap();
    for wrong in [
        locks.permit("k", 2),
        locks.mutex("k").never_expires(),
        locks.mutex("k").linger(ms(100)),
        locks.mutex("k").ttl(ms(61_000)),
        locks.mutex("k").margin(ms(58_000)),
        locks.mutex("k").min_hold(ms(61_000)),
        locks.mutex("k").once(ms(1_000)),
        locks.read("k").fenced(),
    ] {
        let error = wrong.no_wait().blocking_acquire().map(drop).unwrap_err();
        assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
    }
}

#[test]
fn a_server_named_twice_and_one_without_scripts_are_no_nodes() {
    let nodes = Nodes::start(3);
    let [first, second] = [0, 1].map(|at| nodes.servers[at].url());
    let wrong = Locks::builder().quorum([&*first, &*second, &*first]).open().map(drop).unwrap_err();
    assert!(wrong.to_string().contains("named twice"), "{wrong}");
    let twice = [nodes.servers[0].url(), nodes.servers[1].url(), nodes.proxies[0].url()];
    let twice = Locks::builder().quorum(twice).rejoin(Duration::ZERO).open().unwrap();
    let error = twice.mutex("k").blocking_acquire().map(drop).unwrap_err();
    assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
    assert!(error.to_string().contains("one server"), "{error}");
    nodes.servers[2].run::<()>("ACL SETUSER default -eval -evalsha");
    let denied = nodes.locks().open().unwrap();
    let error = denied.mutex("k").blocking_acquire().map(drop).unwrap_err();
    assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
    assert!(error.to_string().contains("+eval +evalsha"), "{error}");
}

#[test]
fn l19_services_that_were_given_different_nodes_are_told() {
    let nodes = Nodes::start(5);
    let of = |wanted: [usize; 3]| {
        let urls = wanted.map(|at| nodes.proxies[at].url());
        Locks::builder().quorum(urls).rejoin(Duration::ZERO).ttl(ms(3_000)).open().unwrap()
    };
    let is_told = |locks: &Locks| match locks.mutex("job").blocking_acquire().map(drop) {
        Err(error @ LockError::InvalidConfig { .. }) => error.to_string().contains("other servers"),
        _ => false,
    };
    let first = of([0, 1, 2]);
    let held = take(first.mutex("held").ttl(PATIENCE));
    for wanted in [[2, 3, 4], [1, 2, 3]] {
        let mut turns = Turns::of("a service that begins is told, unless one of its nodes is late");
        while turns.go_on() {
            let outcome = is_told(&of(wanted)).then_some(());
            turns.end(outcome.ok_or_else(|| format!("{wanted:?} was not")));
        }
    }
    assert!(!is_told(&first), "it was there before");

    // While a node can't be reached, its server is not known.
    nodes.proxies[4].refuse();
    let late = of([2, 3, 4]);
    take(late.mutex("other")).blocking_release().unwrap();
    nodes.proxies[4].pass();
    eventually(PATIENCE, "it is told when all can be reached", || is_told(&late));
    drop(late);

    let urls: Vec<_> = nodes.servers.iter().take(3).map(Server::url).collect();
    let direct = Locks::builder().quorum(urls).rejoin(Duration::ZERO).ttl(ms(3_000));
    let direct = direct.open().unwrap();
    let error = direct.mutex("held").no_wait().blocking_acquire().map(drop).unwrap_err();
    assert!(error.is_busy(), "the same servers by other addresses: {error}");
    nodes.servers[0].kill9();
    nodes.servers[0].restart();
    take(of([0, 1, 2]).mutex("fresh")).blocking_release().unwrap();
    held.blocking_release().unwrap();

    drop((first, direct));
    eventually(PATIENCE, "the nodes are free for others", || !is_told(&of([2, 3, 4])));
    nodes.assert_clean();
}

#[test]
fn l19_a_client_of_a_frozen_node_does_not_keep_out_those_who_have_its_successor() {
    let nodes = Nodes::start(4);
    let of = |wanted: [usize; 3]| {
        let urls = wanted.map(|at| nodes.proxies[at].url());
        Locks::builder().quorum(urls).rejoin(Duration::ZERO).ttl(ms(3_000)).open().unwrap()
    };
    let (old, done, is_over) = (of([0, 1, 2]), AtomicU64::new(0), AtomicBool::new(false));
    let uses_old = || {
        while !is_over.load(Ordering::Relaxed) {
            let _ = old.mutex("old").blocking_acquire().map(Guard::blocking_release);
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let found = std::thread::scope(|scope| {
        scope.spawn(uses_old);
        eventually(PATIENCE, "it works", || done.load(Ordering::Relaxed) > 20);
        nodes.servers[2].freeze();
        let found = of([0, 1, 3]).mutex("new").blocking_acquire().map(drop);
        is_over.store(true, Ordering::Relaxed);
        found
    });
    found.unwrap();
}

#[test]
fn a_quorum_fits_into_one_url() {
    let nodes = Nodes::start(3);
    let hosts: Vec<_> =
        nodes.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    let url = format!("redis-quorum://{}", hosts.join(","));
    let locks = Locks::builder().url(url).rejoin(Duration::ZERO).open().unwrap();
    let guard = take(locks.mutex("job"));
    eventually(PATIENCE, "all have it", || nodes.having("lock:job") == 3);
    let status = locks.blocking_status("job").unwrap();
    assert_eq!(status.server.topology, redis_locks::Topology::Quorum);
    assert_eq!(status.server.nodes.len(), 3);
    assert!(status.server.nodes.iter().all(|node| node.votes), "{:?}", status.server.nodes);
    assert_eq!(status.holders.len(), 1);
    assert_eq!(status.holders[0].token, *guard.token());
    let listed = locks.blocking_list("*").collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    guard.blocking_release().unwrap();
    assert!(!locks.blocking_status("job").unwrap().is_held());
}

#[test]
fn what_only_some_nodes_have_is_ended_by_force_and_listed() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().open().unwrap();
    let _ended = take(locks.mutex("job"));
    eventually(PATIENCE, "all have it", || nodes.having("lock:job") == 3);
    nodes.servers[0].run::<()>("DEL lock:job");
    assert!(locks.blocking_force_release("job", "a test").unwrap(), "it ended a hold of two nodes");
    eventually(PATIENCE, "no node has it", || nodes.having("lock:job") == 0);

    let _listed = take(locks.mutex("other"));
    nodes.servers[2].kill9();
    let listed = || locks.blocking_list("*").collect::<Result<Vec<_>, _>>();
    eventually(PATIENCE, "it is listed", || listed().is_ok_and(|listed| listed.len() == 1));
}
