//! Leases that linger beside clients that know nothing of it, and callers that change their minds.

use std::time::{Duration, Instant};

use redis_locks::Locks;
use testbed::{Server, cancel_at, cancel_in_flight};
use tokio::time::timeout;

use crate::linger_faults::{AMPLE, TTL, end, idle_and_other, leave_idle, lingering};
use crate::support::*;

/// A token of a client that never keeps an idle lease, and that no message reaches.
const OLD: &str = "rl1.00112233445566778899aabbccddeeff.0123456789ab.18f00000000.old";

/// Leaves an idle lease behind whose renewal is due too late to tell of a waiter.
async fn leave_idle_for_long(server: &Server, locks: &Locks, key: &str) {
    let since = Instant::now();
    while !server.exists(&format!("lock:{key}")) {
        let request = lingering(locks, key).ttl(AMPLE * 10);
        request.acquire().await.unwrap().release().await.unwrap();
        assert!(since.elapsed() < AMPLE, "its lease does not stay");
    }
}

/// An older client queues as ever: it marks the value, and tells its manager once.
async fn lg25_a_waiter_of_an_older_version_is_handed_an_idle_lease() {
    let (server, owner, other) = idle_and_other().await;
    leave_idle_for_long(&server, &owner, "old").await;
    let value = server.get("lock:old").unwrap();
    let manager = value.split('.').nth(2).unwrap();
    let place = server.run::<Vec<u64>>("TIME")[0] * 1_000 + 60_000;
    let mut note = redis::cmd("HSET");
    note.arg("lock:{lock:old}:~w").arg(OLD).arg(format!("{place} -"));
    server.run::<()>(&format!("ZADD lock:{{lock:old}}:~q 1 {OLD}"));
    server.query::<()>(&note).unwrap();
    let left = server.pttl("lock:old").unwrap();
    server.run::<()>(&format!("SET lock:old {value}+ PX {left}"));
    let mut message = redis::cmd("PUBLISH");
    message.arg(format!("lock:~m:{manager}")).arg("w lock:old");
    let start = Instant::now();
    server.query::<()>(&message).unwrap();
    until("the old one has it", || server.get("lock:old").is_some_and(|it| it == OLD)).await;
    assert!(start.elapsed() < AMPLE / 2, "{:?}", start.elapsed());
    for locks in [&owner, &other] {
        let call = lingering(locks, "old").try_acquire().await.unwrap();
        assert!(call.is_none(), "the old one is inside");
    }
    server.run::<()>("DEL lock:old");
    end(&server, &[&owner, &other]).await;
}

async fn lg29_a_set_of_keys_is_handed_an_idle_one_among_them() {
    let (server, owner, other) = idle_and_other().await;
    leave_idle_for_long(&server, &owner, "b").await;
    let start = Instant::now();
    let all = other.all(["a", "b", "c"]).wait(AMPLE).acquire().await.unwrap();
    assert!(start.elapsed() < AMPLE / 2, "{:?}", start.elapsed());
    assert!(lingering(&owner, "b").try_acquire().await.unwrap().is_none());
    all.verify().await.unwrap();
    all.release().await.unwrap();
    for key in ["lock:a", "lock:b", "lock:c"] {
        assert!(!server.exists(key), "{key} is left");
    }
    end(&server, &[&owner, &other]).await;
}

/// Drops a call for an idle lease after each number of polls; the lock is free soon after each.
async fn drop_at_every_await(wait: Duration) {
    let (server, owner, other) = idle_and_other().await;
    for at_once in [false, true] {
        let mut polls = 0;
        for attempt in 0..50 {
            // A key of its own: one that was asked for unused would not stay again at once.
            let key = format!("k{attempt}{at_once}");
            leave_idle(&server, &owner, &key).await;
            let call = other.mutex(&key).ttl(AMPLE).wait(wait).acquire();
            let done = match at_once {
                true => timeout(HANGS, cancel_in_flight(polls, call)).await.unwrap(),
                false => timeout(HANGS, cancel_at(polls, call)).await.unwrap(),
            };
            let is_done = done.is_some();
            drop(done);
            let next = lingering(&owner, &key).wait(HANGS).acquire().await;
            next.expect("it is free").release().await.unwrap();
            match is_done {
                false => polls += 1,
                // The answer may be there before the first poll ends: then once more.
                true if polls > 1 => break,
                true => {}
            }
        }
        assert!(polls > 1, "it was never dropped on its way");
    }
    owner.shutdown().await;
    // A place of a waiter lasts for 5 s, and a lease is renewed.
    let start = Instant::now();
    until("nothing is left", || server.keys().is_empty()).await;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    other.shutdown().await;
}

async fn lg21_a_waiter_dropped_while_it_asks_leaves_neither_key_nor_place() {
    drop_at_every_await(AMPLE).await;
}

async fn lg21_a_try_dropped_while_it_asks_leaves_neither_key_nor_place() {
    drop_at_every_await(Duration::ZERO).await;
}

/// How many commands two processes need that take a lock in turns.
async fn commands_in_turns(linger: Duration) -> u64 {
    let (server, one, other) = idle_and_other().await;
    leave_idle(&server, &other, "warm").await;
    server.reset_counts();
    for _ in 0..400 {
        for locks in [&one, &other] {
            let guard = locks.mutex("turns").linger(linger).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
    }
    let counts = server.command_counts();
    end(&server, &[&one, &other]).await;
    counts.values().sum()
}

/// Each asks the other a few times, and then not for as long as that saves nothing.
async fn lg27_a_key_that_is_used_in_turns_costs_hardly_more_than_without_lingering() {
    let without = commands_in_turns(Duration::ZERO).await;
    let with = commands_in_turns(AMPLE).await;
    assert!(with > without, "no process asked another: {with}");
    assert!(with < without * 10 / 9, "{with} commands, {without} without");
}

/// No other client asks for it, and it is renewed as long as it lingers.
async fn lg24_a_lease_that_lingers_for_longer_than_its_ttl_is_renewed() {
    let (server, owner, other) = idle_and_other().await;
    let start = Instant::now();
    until("the lease would have run out", || {
        assert!(server.exists("lock:k"), "it ran out after {:?}", start.elapsed());
        start.elapsed() > TTL + TTL / 6
    })
    .await;
    let guard = lingering(&owner, "k").try_acquire().await.unwrap().expect("it is its own");
    guard.release().await.unwrap();
    end(&server, &[&owner, &other]).await;
}

by_ways!((usual, by_transactions) on 2 threads:
    lg21_a_waiter_dropped_while_it_asks_leaves_neither_key_nor_place,
    lg21_a_try_dropped_while_it_asks_leaves_neither_key_nor_place,
    lg25_a_waiter_of_an_older_version_is_handed_an_idle_lease,
);

by_ways!((usual) on 2 threads:
    lg24_a_lease_that_lingers_for_longer_than_its_ttl_is_renewed,
    lg27_a_key_that_is_used_in_turns_costs_hardly_more_than_without_lingering,
    lg29_a_set_of_keys_is_handed_an_idle_one_among_them,
);
