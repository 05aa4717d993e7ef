//! Optional things that make others sooner: the look when a subscription begins, the renewal when a
//! connection is made again, the `PING` on a silent connection, the look of a caller that does not
//! wait beside one that waits.

use std::time::Instant;

use testbed::{Proxy, Server, Turns, eventually};

use crate::support::*;

/// Its waiters look by themselves once a second at the most.
const EARLY: std::time::Duration = ms(500);

/// Waits until the only waiter has not looked for a while. As its looks are at least 750 ms apart
/// then, the next one by itself does not come within `EARLY / 2`.
async fn until_looks_are_rare(server: &Server) {
    let (mut seen, mut since) = (0, Instant::now());
    until("the looks become rare", || {
        let looks = server.command_counts().get("evalsha").copied().unwrap_or_default();
        if looks != seen {
            (seen, since) = (looks, Instant::now());
        }
        since.elapsed() >= ms(400)
    })
    .await;
}

#[tokio::test]
async fn a_release_while_nobody_listens_is_seen_when_somebody_does() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (holder, locks) = (connect(&server.url()).await, connect(&proxy.url()).await);
    let mut best = PATIENCE;
    for _ in 0..5 {
        let guard = job(&holder).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&locks).wait(PATIENCE).acquire());
        until_queued(&server).await;
        until_looks_are_rare(&server).await;
        server.run::<u64>("CLIENT KILL TYPE pubsub");
        guard.release().await.unwrap();
        let start = Instant::now();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        best = best.min(start.elapsed());
        if best < EARLY / 2 {
            break;
        }
    }
    assert!(best < EARLY / 2, "{best:?}");
    server.assert_clean();
}

#[tokio::test]
async fn a_lock_is_renewed_as_soon_as_a_connection_stands_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    let guard = job(&locks).acquire().await.unwrap();
    // The next renewal by itself is 10 s away.
    proxy.kill_all();
    let renewed = || server.pttl(WIRE).is_some_and(|left| left > 29_000);
    server.run::<u64>("PEXPIRE lock:job 15000");
    let took = eventually(PATIENCE, "it is renewed", renewed);
    assert!(took < ms(3000), "{took:?}");
    guard.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn a_half_open_connection_is_replaced_before_a_call_needs_it() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    job(&locks).acquire().await.unwrap().release().await.unwrap();
    until("it listens", || proxy.only(|connection| connection.subscriber).count() == 1).await;
    let mut turns = Turns::of("the half-open connection is given up, and the new one is used");
    while turns.go_on() {
        let before = proxy.count();
        let commands = || proxy.only(|connection| !connection.subscriber);
        until("one is there for commands", || commands().count() == 1).await;
        commands().hole();
        eventually(PATIENCE, "it is replaced", || proxy.count() > before);
        let start = Instant::now();
        job(&locks).wait(PATIENCE).acquire().await.unwrap().release().await.unwrap();
        turns.must_be_below(COMMAND, start.elapsed());
    }
    server.assert_clean();
}

#[tokio::test]
async fn an_attempt_that_does_not_wait_is_answered_at_once_beside_a_waiter() {
    let server = Server::start();
    let (holder, locks) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut turns = Turns::of("the look of a call that does not wait serves one that waits");
    while turns.go_on() {
        let guard = job(&holder).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&locks).wait_forever().acquire());
        until_queued(&server).await;
        until_looks_are_rare(&server).await;
        let mut soonest = PATIENCE;
        for _ in 0..5 {
            let start = Instant::now();
            assert!(job(&locks).try_acquire().await.unwrap().is_none());
            soonest = soonest.min(start.elapsed());
        }
        assert!(soonest < EARLY / 2, "{soonest:?}");
        // The lock is free without a message, and its waiter would look only in a while.
        server.run::<u64>("DEL lock:job");
        let start = Instant::now();
        let tried = tokio::spawn(job(&locks).try_acquire());
        let theirs = waiting.await.unwrap().unwrap();
        let took = start.elapsed();
        assert!(tried.await.unwrap().unwrap().is_none(), "who came first has it");
        theirs.release().await.unwrap();
        drop(guard);
        turns.must_be_below(EARLY, took);
    }
    locks.shutdown().await;
    holder.shutdown().await;
    server.assert_clean();
}
