//! Leases that linger, and what can happen to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis_locks::{Guard, Idle, LockError, LockRequest, Locks};
use testbed::{Child, ChildIo, Proxy, Server, eventually};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::support::{GRACE, builder, is_before, is_without_scripts};
use crate::without_scripts::{as_user, scripting_of_child};

pub(crate) const AMPLE: Duration = Duration::from_secs(20);
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// How long a shutdown waits for its releases.
const SHUTDOWN: Duration = Duration::from_secs(3);

pub(crate) async fn manager(server: &Server) -> Locks {
    through(&server.url()).await
}

pub(crate) async fn through(url: &str) -> Locks {
    builder(url).connect().await.unwrap()
}

pub(crate) fn lingering(locks: &Locks, key: &str) -> LockRequest {
    locks.mutex(key).ttl(TTL).linger(Duration::from_secs(60))
}

/// Uses a lock until its lease stays: only tokens that were made since messages arrive do.
pub(crate) async fn leave_idle(server: &Server, locks: &Locks, key: &str) {
    let since = Instant::now();
    loop {
        lingering(locks, key).acquire().await.unwrap().release().await.unwrap();
        if server.keys().iter().any(|it| it.ends_with(key)) {
            return;
        }
        assert!(since.elapsed() < AMPLE, "its lease does not stay");
    }
}

/// The lock that `owner` keeps an idle lease of, by an attempt of `other` that does not wait. The holder
/// has 50 ms to give it up, which on a busy machine is too little now and then, but not every time.
pub(crate) async fn tried(server: &Server, owner: &Locks, other: &Locks) -> Guard {
    for _ in 0..10 {
        leave_idle(server, owner, "k").await;
        if let Some(guard) = other.mutex("k").try_acquire().await.unwrap() {
            return guard;
        }
    }
    panic!("no attempt of ten got what is idle")
}

/// A server, and two managers, the first of which keeps an idle lease of `k`.
pub(crate) async fn idle_and_other() -> (Server, Locks, Locks) {
    let server = Server::start();
    let (owner, other) = (manager(&server).await, manager(&server).await);
    leave_idle(&server, &owner, "k").await;
    (server, owner, other)
}

/// Shuts the managers down. Nothing may be left then.
pub(crate) async fn end(server: &Server, managers: &[&Locks]) {
    for locks in managers {
        locks.shutdown().await;
    }
    server.assert_clean();
}

/// The `SCRIPTING` of a child, which goes the same way as the test.
fn child_scripting() -> &'static str {
    if is_without_scripts() { "never" } else { "auto" }
}

/// Leaves an idle lease behind and says so; then it is killed, or asked to end.
pub(crate) fn keep(io: &mut ChildIo) {
    Runtime::new().unwrap().block_on(async {
        let url = std::env::var("REDIS_URL").unwrap();
        let client = redis::Client::open(&*url).unwrap();
        let locks = Locks::builder().url(url).scripting(scripting_of_child()).open().unwrap();
        loop {
            lingering(&locks, "k").acquire().await.unwrap().release().await.unwrap();
            let mut connection = client.get_connection().unwrap();
            if redis::Commands::exists::<_, bool>(&mut connection, "lock:k").unwrap() {
                break;
            }
        }
        io.say("idle");
        io.hear();
    });
}

async fn lg1_an_idle_holder_that_dies_costs_others_its_lease_and_no_more() {
    let server = Server::start();
    let locks = manager(&server).await;
    let mut child = Child::spawn(
        "linger_keep",
        &[("REDIS_URL", &*server.url()), ("SCRIPTING", child_scripting())],
    );
    child.expect("idle");
    child.kill9();
    let start = Instant::now();
    assert!(locks.mutex("k").try_acquire().await.unwrap().is_none(), "it may be inside");
    let guard = locks.mutex("k").wait(AMPLE).acquire().await.unwrap();
    assert!(start.elapsed() < TTL + AMPLE / 4, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    end(&server, &[&locks]).await;
}

async fn lg3_a_lease_that_is_asked_for_while_it_is_taken_again_lets_one_in() {
    let (server, owner, other) = idle_and_other().await;
    let (inside, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let enter = |inside: &Arc<AtomicUsize>| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let (inside_too, over) = (Arc::clone(&inside), Arc::clone(&is_over));
    let owner_too = owner.clone();
    let loops = tokio::spawn(async move {
        while !over.load(Ordering::SeqCst) {
            let guard = lingering(&owner_too, "k").acquire().await.unwrap();
            enter(&inside_too);
            guard.release().await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let (since, mut taken) = (Instant::now(), 0);
    while taken < 200 {
        assert!(since.elapsed() < AMPLE, "{taken} tries succeeded");
        if let Some(guard) = other.mutex("k").try_acquire().await.unwrap() {
            enter(&inside);
            guard.release().await.unwrap();
            taken += 1;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    loops.await.unwrap();
    end(&server, &[&owner, &other]).await;
}

async fn lg10_a_flush_ends_an_idle_lease_with_its_next_renewal_and_fences_rise() {
    let (server, owner, other) = idle_and_other().await;
    let guard = lingering(&owner, "f").fenced().acquire().await.unwrap();
    let before = guard.fence().unwrap();
    guard.release().await.unwrap();
    server.run::<()>("FLUSHALL");
    let fenced = other.mutex("f").fenced().acquire().await.unwrap();
    assert!(fenced.fence().unwrap() > before);
    let guard = other.mutex("k").acquire().await.unwrap();
    let since = Instant::now();
    while lingering(&owner, "k").try_acquire().await.unwrap().is_some() {
        assert!(since.elapsed() < AMPLE, "it is believed in for longer than until a renewal");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    guard.verify().await.unwrap();
    owner.shutdown().await;
    fenced.release().await.unwrap();
    guard.release().await.unwrap();
    other.shutdown().await;
}

async fn lg13_an_idle_lease_is_ended_by_force() {
    // Its renewals come too late to find out.
    const LONG: Duration = Duration::from_secs(100);
    let (server, owner, other) = idle_and_other().await;
    let long = || lingering(&owner, "f").ttl(LONG);
    long().acquire().await.unwrap().release().await.unwrap();
    assert!(server.pttl("lock:f").unwrap() > 90_000, "it stays");
    assert!(other.force_release("f", "it is in the way").await.unwrap());
    let guard = other.mutex("f").try_acquire().await.unwrap().expect("it is free");
    let since = Instant::now();
    while long().try_acquire().await.unwrap().is_some() {
        assert!(since.elapsed() < AMPLE, "the ended lease is handed out");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    guard.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

async fn a_token_whose_lease_is_idle_here_cannot_be_adopted_here() {
    let (server, owner, other) = idle_and_other().await;
    let token = owner.status("k").await.unwrap().holders[0].token.clone();
    let adopted = owner.mutex("k").adopt(token).await;
    assert!(adopted.as_ref().is_err_and(LockError::is_lost), "it was released: {adopted:?}");
    let guard = lingering(&owner, "k").try_acquire().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

async fn use_each(locks: &Locks, keys: std::ops::Range<usize>) {
    for start in keys.clone().step_by(200) {
        let mut some = JoinSet::new();
        for number in start..(start + 200).min(keys.end) {
            let asking = lingering(locks, &format!("k{number}")).ttl(AMPLE * 10).acquire();
            some.spawn(async move { asking.await.unwrap().release().await.unwrap() });
        }
        some.join_all().await;
    }
}

async fn lg14_lg16_the_oldest_of_too_many_idle_leases_go_and_a_shutdown_takes_the_rest() {
    const MOST: usize = 10_000;
    let server = Server::start();
    let locks = manager(&server).await;
    leave_idle(&server, &locks, "warm").await;
    use_each(&locks, 0..MOST - 1).await;
    assert_eq!(server.run::<usize>("DBSIZE"), MOST);
    // What is used again is not the oldest any more.
    use_each(&locks, 0..100).await;
    use_each(&locks, MOST..MOST + 500).await;
    let kept = || server.run::<usize>("DBSIZE");
    eventually(AMPLE, "some are given back", || kept() <= MOST);
    assert!(kept() > MOST - 1_000, "{}", kept());
    assert!(server.exists("lock:k50"), "it was used lately");
    assert!(!server.exists("lock:k300"), "it is one of the oldest");
    let start = Instant::now();
    locks.shutdown().await;
    if is_without_scripts() && start.elapsed() >= SHUTDOWN {
        // So many transactions may take longer than a shutdown waits. Their leases end.
        return;
    }
    assert_eq!(server.run::<usize>("DBSIZE"), 0, "a shutdown leaves nothing");
}

async fn lg17_two_who_ask_for_an_idle_lease_get_it_one_after_the_other() {
    let server = Server::start();
    let owner = manager(&server).await;
    let others = [manager(&server).await, manager(&server).await];
    leave_idle(&server, &owner, "k").await;
    let [first, second] = others.each_ref().map(|locks| locks.mutex("k").wait(AMPLE).acquire());
    tokio::join!(async { first.await.unwrap().release().await.unwrap() }, async {
        second.await.unwrap().release().await.unwrap()
    });
    end(&server, &[&owner, &others[0], &others[1]]).await;
}

async fn lg4_a_lost_message_costs_a_waiter_no_more_than_a_look() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (owner, other) = (through(&proxy.url()).await, manager(&server).await);
    leave_idle(&server, &owner, "k").await;
    let deaf = proxy.only(|connection| connection.subscriber);
    assert_eq!(deaf.count(), 1, "one connection listens");
    deaf.hole_down();
    let start = Instant::now();
    // The answer to the renewal, a third of the lease later at most, says that another process
    // waits.
    let guard = other.mutex("k").wait(AMPLE).acquire().await.unwrap();
    assert!(start.elapsed() < AMPLE / 2, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    deaf.pass();
    end(&server, &[&owner, &other]).await;
}

async fn a_key_that_is_asked_away_unused_does_not_linger_for_a_while() {
    let (server, owner, other) = idle_and_other().await;
    other.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let (begun, mut stayed) = (Instant::now(), false);
    lingering(&owner, "k").acquire().await.unwrap().release().await.unwrap();
    let since = Instant::now();
    assert!(!server.exists("lock:k") || begun.elapsed() > Duration::from_secs(1));
    while !stayed {
        assert!(since.elapsed() < AMPLE, "it never lingers again");
        lingering(&owner, "k").acquire().await.unwrap().release().await.unwrap();
        stayed = server.exists("lock:k");
    }
    end(&server, &[&owner, &other]).await;
}

async fn the_status_of_an_idle_lease_says_that_nobody_is_inside() {
    let (server, owner, other) = idle_and_other().await;
    let status = owner.status("k").await.unwrap();
    assert!(matches!(status.holders[0].idle, Idle::Since(_)), "{status:?}");
    let status = other.status("k").await.unwrap();
    assert_eq!(status.holders[0].idle, Idle::Maybe, "only its own process knows");
    let guard = lingering(&owner, "k").acquire().await.unwrap();
    assert_eq!(owner.status("k").await.unwrap().holders[0].idle, Idle::No);
    guard.release().await.unwrap();
    let plain = owner.mutex("plain").acquire().await.unwrap();
    assert_eq!(other.status("plain").await.unwrap().holders[0].idle, Idle::No);
    plain.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

/// A server, an owner and another one; of one of them, messages can be stopped.
pub(crate) async fn with_proxy(is_owner: bool) -> (Server, Proxy, Locks, Locks) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (disturbed, direct) = (through(&proxy.url()).await, manager(&server).await);
    let (owner, other) = if is_owner { (disturbed, direct) } else { (direct, disturbed) };
    // Both receive messages from here on.
    leave_idle(&server, &other, "warm").await;
    leave_idle(&server, &owner, "k").await;
    (server, proxy, owner, other)
}

async fn lg5_a_question_that_is_lost_makes_a_try_busy_and_no_more() {
    let (server, proxy, owner, other) = with_proxy(true).await;
    let deaf = proxy.only(|connection| connection.subscriber);
    assert_eq!(deaf.count(), 1, "one connection listens");
    deaf.hole_down();
    let start = Instant::now();
    assert!(other.mutex("k").try_acquire().await.unwrap().is_none(), "no process could answer");
    assert!(start.elapsed() < AMPLE / 4, "{:?}", start.elapsed());
    let guard = lingering(&owner, "k").try_acquire().await.unwrap().expect("it is its own");
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    deaf.pass();
    end(&server, &[&owner, &other]).await;
}

async fn lg5_an_answer_that_is_lost_is_found_by_a_look() {
    let (server, proxy, owner, other) = with_proxy(false).await;
    proxy.only(|connection| connection.subscriber).hole_down();
    // What tells of the hand-over is lost.
    tried(&server, &owner, &other).await.release().await.unwrap();
    let inside = lingering(&owner, "k").acquire().await.unwrap();
    // So is what says that a holder is inside.
    let start = Instant::now();
    assert!(other.mutex("k").try_acquire().await.unwrap().is_none(), "a holder is inside");
    assert!(start.elapsed() < AMPLE / 4, "{:?}", start.elapsed());
    inside.verify().await.unwrap();
    inside.release().await.unwrap();
    proxy.pass();
    end(&server, &[&owner, &other]).await;
}

/// The holder is cut off, so its lease runs out while it is idle; others ask for it before, at, and
/// after its end.
async fn lg9_a_lease_that_is_asked_for_when_it_runs_out_goes_to_the_asker() {
    const SHORT: Duration = Duration::from_millis(900);
    let (server, proxy, owner, other) = with_proxy(true).await;
    for before in [600, 60, 20, 0] {
        let since = Instant::now();
        while !server.exists("lock:s") {
            lingering(&owner, "s").ttl(SHORT).acquire().await.unwrap().release().await.unwrap();
            assert!(since.elapsed() < AMPLE, "its lease does not stay");
        }
        proxy.hole();
        eventually(AMPLE, "the time has come", || {
            server.pttl("lock:s").is_none_or(|left| left <= before)
        });
        let start = Instant::now();
        let guard = other.mutex("s").ttl(AMPLE).wait(AMPLE).acquire().await.unwrap();
        assert!(start.elapsed() < SHORT + GRACE, "{before} ms before: {:?}", start.elapsed());
        proxy.pass();
        let call = lingering(&owner, "s").ttl(SHORT).try_acquire().await;
        // It has no lease any more; its connection may have been given up meanwhile.
        assert!(matches!(call, Ok(None) | Err(LockError::Backend { .. })), "{before}: {call:?}");
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
    }
    end(&server, &[&owner, &other]).await;
}

/// Takes a lock for this ttl again and again; no other holder may be inside meanwhile.
async fn take_in_turn(
    locks: Locks,
    ttl: Duration,
    inside: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
) {
    while !is_over.load(Ordering::SeqCst) {
        let guard = lingering(&locks, "k").ttl(ttl).acquire().await.unwrap();
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        let left = guard.remaining();
        assert!(left <= ttl && left > ttl / 3, "{left:?} of {ttl:?}");
        inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
        tokio::task::yield_now().await;
    }
}

async fn lg23_two_ttls_take_turns_at_one_idle_lease_and_others_get_it_between() {
    let (server, owner, other) = idle_and_other().await;
    let (inside, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let turns = [TTL, TTL * 4].map(|ttl| {
        let (inside, is_over) = (Arc::clone(&inside), Arc::clone(&is_over));
        tokio::spawn(take_in_turn(owner.clone(), ttl, inside, is_over))
    });
    for round in 0..60 {
        let guard = other.mutex("k").ttl(TTL).wait(AMPLE).acquire().await.unwrap();
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside in round {round}");
        inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for turn in turns {
        turn.await.unwrap();
    }
    end(&server, &[&owner, &other]).await;
}

by_ways!((usual, by_transactions) on 2 threads:
    lg1_an_idle_holder_that_dies_costs_others_its_lease_and_no_more,
    lg3_a_lease_that_is_asked_for_while_it_is_taken_again_lets_one_in,
    lg4_a_lost_message_costs_a_waiter_no_more_than_a_look,
    lg5_a_question_that_is_lost_makes_a_try_busy_and_no_more,
    lg5_an_answer_that_is_lost_is_found_by_a_look,
    lg9_a_lease_that_is_asked_for_when_it_runs_out_goes_to_the_asker,
    lg10_a_flush_ends_an_idle_lease_with_its_next_renewal_and_fences_rise,
    lg13_an_idle_lease_is_ended_by_force,
    lg14_lg16_the_oldest_of_too_many_idle_leases_go_and_a_shutdown_takes_the_rest,
    lg17_two_who_ask_for_an_idle_lease_get_it_one_after_the_other,
    lg23_two_ttls_take_turns_at_one_idle_lease_and_others_get_it_between,
    a_token_whose_lease_is_idle_here_cannot_be_adopted_here,
    a_key_that_is_asked_away_unused_does_not_linger_for_a_while,
    the_status_of_an_idle_lease_says_that_nobody_is_inside,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_leases_are_handed_over_when_scripts_are_forgotten_or_denied_in_the_midst() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~* &* +@all").start();
    let url = as_user(&server, "app");
    let (owner, other) = (through(&url).await, through(&url).await);
    let held = owner.mutex("held").ttl(TTL).acquire().await.unwrap();
    let changes = [
        "SCRIPT FLUSH",
        "ACL SETUSER app -eval -evalsha",
        "SCRIPT FLUSH",
        "ACL SETUSER app +eval +evalsha",
    ];
    for change in changes {
        leave_idle(&server, &owner, "k").await;
        server.run::<()>(change);
        let start = Instant::now();
        let guard = other.mutex("k").wait(AMPLE).acquire().await.unwrap();
        assert!(start.elapsed() < AMPLE / 2, "after {change}: {:?}", start.elapsed());
        assert!(lingering(&owner, "k").try_acquire().await.unwrap().is_none(), "after {change}");
        guard.release().await.unwrap();
        held.verify().await.unwrap();
    }
    held.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}
