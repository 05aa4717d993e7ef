//! Taking a lock while calls are dropped, replies get lost and servers freeze: nothing may be
//! left without a holder, and no caller may wait for longer than agreed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks};
use testbed::{Proxy, Server, cancel_at, cancel_in_flight, eventually, holds_for};
use tokio::time::{sleep, timeout};

use crate::support::*;

async fn a1_dropped_before_send_leaves_nothing() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let monitor = server.monitor();
    assert!(cancel_at(0, job(&locks).acquire()).await.is_none());
    holds_for(ms(100), "nothing is sent", || monitor.count(WIRE) == 0);
    // Dropped right after the first poll, possibly before the engine's thread has run.
    for _ in 0..200 {
        // The answer may be there all the same; then it is a guard that is dropped.
        drop(cancel_in_flight(1, job(&locks).acquire()).await);
    }
    eventually(SOON, "the key is gone", || !server.exists(WIRE));
    assert_free(&server);
    // Without scripts commands of one key follow each other, each after the answer to the last.
    until_quiet(&monitor, ms(100));
    let guard = job(&locks).try_acquire().await.unwrap().expect("no local waiter is in the way");
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn acquire_and_drop(locks: &Locks) {
    drop(job(locks).acquire().await.unwrap());
}

/// Drops `acquire` after each number of polls, in both ways there are, until it finishes first.
async fn drop_acquire_everywhere(server: &Server, locks: &Locks) {
    for polls in 0.. {
        let late = timeout(ms(500), cancel_at(polls, acquire_and_drop(locks))).await;
        eventually(SOON, "a lock given up late is gone", || server.keys().is_empty());
        let early = cancel_in_flight(polls, acquire_and_drop(locks)).await;
        eventually(SOON, "a lock given up in flight is gone", || server.keys().is_empty());
        if late == Ok(Some(())) && early.is_some() {
            assert!(polls > 0);
            return;
        }
        assert!(polls < 100, "acquire needs more than 100 polls");
    }
}

async fn a2_dropped_after_send_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    for delay in [0, 5, 50] {
        proxy.delay_up(ms(delay));
        drop_acquire_everywhere(&server, &locks).await;
    }
    for delay in [5, 50] {
        proxy.pass();
        proxy.delay_down(ms(delay));
        drop_acquire_everywhere(&server, &locks).await;
    }
    server.assert_clean();
}

async fn a2_dropped_while_waiting_leaves_no_waiter() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (holder, locks) = (connect(&server.url()).await, connect(&proxy.url()).await);
    for delay in [0, 5, 50] {
        proxy.delay_up(ms(delay));
        for polls in 0..6 {
            let guard = job(&holder).acquire().await.unwrap();
            let waited = timeout(ms(150), cancel_at(polls, job(&locks).acquire())).await;
            assert!(!matches!(waited, Ok(Some(_))), "two hold it");
            // The place in the queue is given up: those two keys go, the holder's stays.
            eventually(SOON, "no waiter is left", || server.keys() == [WIRE]);
            guard.release().await.unwrap();
            eventually(SOON, "nothing is left", || server.keys().is_empty());
        }
    }
    server.assert_clean();
}

/// Both are dropped at once: the holder's guard, and the waiter that is being granted the lock.
async fn a2_dropped_while_being_granted_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (holder, locks) = (connect(&server.url()).await, connect(&proxy.url()).await);
    for delay in [0, 5, 20] {
        proxy.delay_up(ms(delay));
        for wait in (0..40).step_by(4) {
            let guard = job(&holder).acquire().await.unwrap();
            let waiting = tokio::spawn(job(&locks).acquire());
            until_queued(&server).await;
            drop(guard);
            // Before, while and after it is granted the lock.
            sleep(ms(wait)).await;
            waiting.abort();
            drop(waiting.await);
            eventually(SOON, "nothing is left", || server.keys().is_empty());
        }
    }
    server.assert_clean();
}

async fn a3_reply_lost_is_recognised_as_ours() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    for round in 1..=5 {
        proxy.cut_reply_to(WIRE);
        let guard = job(&locks).wait(PATIENCE).acquire().await.unwrap();
        assert_eq!(proxy.cuts(), round, "the reply was lost");
        assert_eq!(server.get(WIRE), Some(guard.token().to_string()));
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

async fn a3_reply_lost_does_not_cost_another_fence() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let mut last = 0;
    for round in 1..=5 {
        proxy.cut_reply_to(WIRE);
        let guard = job(&locks).fenced().wait(PATIENCE).acquire().await.unwrap();
        assert_eq!(proxy.cuts(), round, "the reply was lost");
        let fence = guard.fence().expect("a fenced request has a fence");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        guard.release().await.unwrap();
    }
    server.assert_clean();
}

async fn a5_executed_after_the_timeout_is_undone() {
    for drop_the_manager in [false, true] {
        let server = Server::start();
        let locks = connect(&server.url()).await;
        server.freeze();
        let outcome = job(&locks).wait(ms(300)).acquire().await;
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
        let kept = (!drop_the_manager).then_some(locks);
        sleep(ms(300)).await;
        server.thaw();
        eventually(ms(2000), "the key is gone", || !server.exists(WIRE));
        holds_for(ms(500), "the key stays away", || !server.exists(WIRE));
        assert_free(&server);
        server.assert_clean();
        drop(kept);
    }
}

async fn a6_a_release_that_overtakes_the_acquire_still_wins() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    // A connection whose requests crawl; the next ones are fast.
    proxy.existing().delay_up(ms(1500));
    let monitor = server.monitor();
    // Given up before anything has arrived.
    let outcome = timeout(ms(300), job(&locks).acquire()).await;
    assert!(outcome.is_err(), "{outcome:?}");
    assert!(!server.exists(WIRE));
    let is_request = |line: &String| line.contains("\"NX\"") && line.contains("\"lock:job\"");
    eventually(PATIENCE, "the late request has been executed", || {
        monitor.lines().iter().any(is_request)
    });
    eventually(ms(1000), "the key is gone", || !server.exists(WIRE));
    holds_for(ms(500), "the key stays away", || !server.exists(WIRE));
    assert_free(&server);
    server.assert_clean();
}

/// The first request gets stuck, its repetition on a new connection is granted and released, and
/// then the first one arrives, under a token that is dead.
async fn late_duplicate(fenced: bool) -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    proxy.existing().hole_up();
    let request = job(&locks).wait(PATIENCE);
    let request = if fenced { request.fenced() } else { request };
    let guard = request.acquire().await.unwrap();
    assert_eq!(server.get(WIRE), Some(guard.token().to_string()));
    guard.release().await.unwrap();
    eventually(SOON, "it is released", || !server.exists(WIRE));
    let arrivals = |server: &Server| {
        let counts = server.command_counts();
        let count = |name| counts.get(name).copied().unwrap_or_default();
        match fenced {
            // What got stuck is its first reading, which asks for the time.
            true if is_without_scripts() => count("watch") + count("time"),
            true => count("evalsha") + count("eval"),
            false => count("set"),
        }
    };
    let before = arrivals(&server);
    proxy.pass();
    eventually(PATIENCE, "the late request is executed", || arrivals(&server) > before);
    (server, proxy)
}

async fn a7_a_late_duplicate_is_refused() {
    let (server, _proxy) = late_duplicate(true).await;
    holds_for(ms(1500), "the tombstone keeps it away", || !server.exists(WIRE));
    assert_free(&server);
    server.assert_clean();
}

/// A bare `SET NX` does not look for a tombstone, so the engine repeats the release of its token.
async fn a7_a_late_duplicate_that_cannot_be_refused_is_undone() {
    let (server, _proxy) = late_duplicate(false).await;
    eventually(ms(2000), "it is undone", || !server.exists(WIRE));
    holds_for(ms(1000), "it stays away", || !server.exists(WIRE));
    assert_free(&server);
    server.assert_clean();
}

async fn a8_a_timeout_at_the_moment_of_the_grant_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    proxy.delay_up(ms(3));
    let (mut granted, mut abandoned) = (0, 0);
    for round in 0..500_u64 {
        let key = format!("job:{round}");
        let limit = Duration::from_micros(2000 + 40 * (round % 100));
        match timeout(limit, locks.mutex(&key).ttl(LONG).acquire()).await {
            Ok(guard) => {
                drop(guard.unwrap());
                granted += 1;
            }
            Err(_) => abandoned += 1,
        }
    }
    assert!(granted > 0 && abandoned > 0, "{granted} granted, {abandoned} abandoned");
    // On a slow machine answers come after the time limit of commands. Then a tombstone stays, so that
    // nothing late takes the lock.
    let is_tombstone = |key: &String| key.contains(":~x:");
    eventually(SOON, "no lock is left", || server.keys().iter().all(is_tombstone));
    server.assert_clean();
}

async fn a10_the_wait_bound_holds_when_the_server_is_frozen() {
    let server = Server::start();
    let (connected, fresh) = (connect(&server.url()).await, open(&server.url()));
    server.freeze();
    for locks in [connected, fresh] {
        for wait in [0, 200, 700].map(ms) {
            let start = Instant::now();
            let outcome = job(&locks).wait(wait).acquire().await;
            let took = start.elapsed();
            assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
            assert!(took < wait + COMMAND + GRACE, "{took:?} for a wait of {wait:?}");
        }
    }
    server.thaw();
    server.assert_clean();
}

async fn a11_try_acquire_on_a_dead_server_fails_fast() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    server.kill9();
    // Long enough for the pauses between reconnections to have grown.
    for pause in [0, 10, 1000, 3000] {
        sleep(ms(pause)).await;
        let start = Instant::now();
        let outcome = job(&locks).try_acquire().await;
        let took = start.elapsed();
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
        assert!(took < COMMAND + GRACE, "{took:?}");
    }
    server.restart();
    let guard = job(&locks).wait(PATIENCE).acquire().await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn a12_every_acquisition_has_a_token_of_its_own() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let tasks = (0..32).map(|task| {
        let (locks, tokens) = (locks.clone(), Arc::clone(&tokens));
        tokio::spawn(async move {
            for round in 0..10 {
                let own = format!("own:{task}:{round}");
                for key in ["shared", own.as_str()] {
                    let guard = locks.mutex(key).ttl(LONG).acquire().await.unwrap();
                    tokens.lock().unwrap().push(guard.token().to_string());
                    guard.release().await.unwrap();
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len());
    assert_eq!(tokens.len(), 640);
    server.assert_clean();
}

#[test]
fn a14_the_cleanup_outlives_the_callers_runtime() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    for delay in [0, 5, 50, 150] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let locks = runtime.block_on(connect(&proxy.url()));
        proxy.delay_up(ms(delay));
        let monitor = server.monitor();
        let arrived = || monitor.count(WIRE) > 0;
        runtime.block_on(started({
            let locks = locks.clone();
            async move {
                let _guard = job(&locks).acquire().await;
                std::future::pending::<()>().await;
            }
        }));
        if delay == 0 {
            eventually(PATIENCE, "it was asked for", arrived);
        }
        runtime.shutdown_background();
        eventually(PATIENCE, "what was under way has arrived", arrived);
        eventually(SOON, "the key is gone", || !server.exists(WIRE));
        holds_for(ms(200), "it stays away", || !server.exists(WIRE));
        proxy.pass();
    }
    server.assert_clean();
}

each_way!(
    a1_dropped_before_send_leaves_nothing,
    a2_dropped_after_send_leaves_nothing,
    a2_dropped_while_waiting_leaves_no_waiter,
    a2_dropped_while_being_granted_leaves_nothing,
    a3_reply_lost_is_recognised_as_ours,
    a3_reply_lost_does_not_cost_another_fence,
    a5_executed_after_the_timeout_is_undone,
    a6_a_release_that_overtakes_the_acquire_still_wins,
    a7_a_late_duplicate_is_refused,
    a7_a_late_duplicate_that_cannot_be_refused_is_undone,
    a8_a_timeout_at_the_moment_of_the_grant_leaves_nothing,
    a10_the_wait_bound_holds_when_the_server_is_frozen,
    a11_try_acquire_on_a_dead_server_fails_fast,
);

each_way!(on 2 threads:
    a12_every_acquisition_has_a_token_of_its_own,
);
