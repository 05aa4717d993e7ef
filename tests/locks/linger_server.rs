//! Leases that linger, where the server denies something, is full, or starts anew.

use std::time::{Duration, Instant};

use redis_locks::Locks;
use testbed::Server;

use crate::linger_faults::{
    AMPLE, end, idle_and_other, leave_idle, lingering, manager, through, tried, with_proxy,
};
use crate::support::*;
use crate::without_scripts::as_user;

/// How soon a call that does not wait must be answered; its holder has 50 ms.
const IN_TIME: Duration = Duration::from_secs(5);

/// A server with a user that may do everything but what is named, and one manager of either: the
/// first is the one that is denied something.
async fn with_denied(rights: &str) -> (Server, Locks, Locks) {
    let server = Server::builder().user(&format!("less on >secret ~* &* +@all {rights}")).start();
    let (less, whole) = (through(&as_user(&server, "less")).await, manager(&server).await);
    (server, less, whole)
}

async fn is_refused_in_time(locks: &Locks) {
    let start = Instant::now();
    assert!(locks.mutex("k").try_acquire().await.unwrap().is_none(), "a holder is inside");
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
}

async fn lg19_a_holder_that_may_not_publish_hands_over_and_is_silent_inside() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let (server, owner, other) = with_denied("-publish -spublish").await;
    // Only a look finds it.
    tried(&server, &owner, &other).await.release().await.unwrap();
    let inside = lingering(&owner, "k").acquire().await.unwrap();
    is_refused_in_time(&other).await;
    inside.verify().await.unwrap();
    inside.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

async fn lg19_an_asker_that_may_not_publish_is_refused_in_time_or_waits_for_a_renewal() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let (server, other, owner) = with_denied("-publish -spublish").await;
    leave_idle(&server, &owner, "k").await;
    is_refused_in_time(&other).await;
    let start = Instant::now();
    let guard = other.mutex("k").wait(AMPLE).acquire().await.unwrap();
    assert!(start.elapsed() < AMPLE / 2, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

async fn lg19_a_holder_that_is_deaf_keeps_no_lease() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let (server, owner, other) = with_denied("-subscribe -ssubscribe").await;
    for _ in 0..20 {
        let guard = lingering(&owner, "k").acquire().await.unwrap();
        let made_at = guard.token().to_string().split('.').nth(3).map(str::to_owned);
        assert!(made_at.is_some_and(|it| !it.starts_with('0')), "its token says it may be idle");
        guard.release().await.unwrap();
        assert!(!server.exists("lock:k"), "no client could ask for it");
    }
    other.mutex("k").try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

async fn lg19_an_asker_without_messages_is_refused_in_time_or_waits_for_a_renewal() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let (server, other, owner) = with_denied("-subscribe -ssubscribe").await;
    leave_idle(&server, &owner, "k").await;
    let start = Instant::now();
    let call = other.mutex("k").try_acquire().await.unwrap();
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    drop(call);
    let start = Instant::now();
    let guard = other.mutex("k").wait(AMPLE).acquire().await.unwrap();
    assert!(start.elapsed() < AMPLE / 2, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

/// What needs no more memory goes on: calls of the process that has it, its renewal, and its end. What
/// can't be noted there is who waits.
async fn lg20_on_a_full_server_an_idle_lease_is_used_and_given_back() {
    let (server, owner, other) = idle_and_other().await;
    server.run::<()>("CONFIG SET maxmemory 1");
    for _ in 0..3 {
        lingering(&owner, "k").acquire().await.unwrap().release().await.unwrap();
    }
    assert!(server.exists("lock:k"), "its own calls need no memory");
    let waiting = started(other.mutex("k").wait(AMPLE).acquire()).await;
    stays(WATCHED, "it waits for memory", || !waiting.is_finished()).await;
    server.run::<()>("CONFIG SET maxmemory 0");
    let start = Instant::now();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    let since = Instant::now();
    while !server.exists("lock:short") {
        let short = lingering(&owner, "short").ttl(AMPLE * 10).linger(ms(800));
        short.acquire().await.unwrap().release().await.unwrap();
        assert!(since.elapsed() < AMPLE, "its lease does not stay");
    }
    server.run::<()>("CONFIG SET maxmemory 1");
    until("it is given back", || !server.exists("lock:short")).await;
    server.run::<()>("CONFIG SET maxmemory 0");
    end(&server, &[&owner, &other]).await;
}

async fn lg11_a_server_that_starts_empty_ends_an_idle_lease() {
    let (server, owner, other) = idle_and_other().await;
    let before = server.get("lock:k").unwrap();
    server.kill9();
    server.restart();
    let guard = lingering(&owner, "k").wait(AMPLE).acquire().await.unwrap();
    assert_ne!(guard.token().to_string(), before, "it was handed out without a question");
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

/// The connection that brings messages is cut, and the one for commands is not.
async fn lg12_an_idle_lease_ends_with_the_connection_that_brings_messages() {
    let (server, proxy, owner, other) = with_proxy(true).await;
    let ears = proxy.only(|connection| connection.subscriber);
    assert_eq!(ears.count(), 1, "one connection listens");
    ears.kill();
    // It would be renewed for a minute.
    until("it is given back", || !server.exists("lock:k")).await;
    // It gets messages again.
    tried(&server, &owner, &other).await.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

by_ways!((usual, by_transactions) on 2 threads:
    lg11_a_server_that_starts_empty_ends_an_idle_lease,
    lg12_an_idle_lease_ends_with_the_connection_that_brings_messages,
    lg19_a_holder_that_may_not_publish_hands_over_and_is_silent_inside,
    lg19_an_asker_that_may_not_publish_is_refused_in_time_or_waits_for_a_renewal,
    lg19_a_holder_that_is_deaf_keeps_no_lease,
    lg19_an_asker_without_messages_is_refused_in_time_or_waits_for_a_renewal,
);

by_ways!((usual) on 2 threads:
    lg20_on_a_full_server_an_idle_lease_is_used_and_given_back,
);
