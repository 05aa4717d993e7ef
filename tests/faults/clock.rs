//! Clocks that jump: the server's, which ends locks too early or too late, and our own, which
//! must not matter at all.

use std::time::Instant;

use redis_locks::{LockState, LossReason};
use testbed::{Child, ChildIo, ClockShim, Server, eventually, holds_for};

use crate::support::*;

macro_rules! clock {
    () => {{
        let Some(clock) = ClockShim::new() else {
            testbed::skip!("no C compiler to build the clock shim with")
        };
        clock
    }};
}

#[tokio::test]
async fn h1_a_server_clock_that_jumps_forward_is_a_loss() {
    let clock = clock!();
    let server = Server::builder().clock(&clock).start();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let first = locks.mutex(KEY).ttl(ms(3000)).fenced().acquire().await.unwrap();
    clock.set(60.0);
    let second = job(&other).fenced().wait(PATIENCE).acquire().await.unwrap();
    match loss(&first).await {
        LossReason::Overwritten { by, .. } => assert_eq!(by, second.token()),
        // It may have been looked at before the second one came.
        LossReason::Removed { .. } => {}
        reason => panic!("{reason:?}"),
    }
    assert!(second.fence() > first.fence(), "{:?} after {:?}", second.fence(), first.fence());
    drop(first);
    second.verify().await.unwrap();
    second.release().await.unwrap();
    server.assert_clean();
}

#[tokio::test]
async fn h2_a_server_clock_that_jumps_back_starves_nobody() {
    let clock = clock!();
    let server = Server::builder().clock(&clock).start();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = locks.mutex(KEY).ttl(ms(3000)).fenced().acquire().await.unwrap();
    let fence = guard.fence();
    clock.set(-3600.0);
    // Servers look at the clock once for each round of their event loop.
    eventually(ms(500), "the lock has an hour more to live", || {
        server.pttl(WIRE).is_some_and(|left| left > 3_000_000)
    });
    eventually(ms(3000), "the next renewal sets it right", || {
        server.pttl(WIRE).is_some_and(|left| left <= 3000)
    });
    holds_for(ms(3500), "the lock is kept", || guard.state() == LockState::Held);
    guard.release().await.unwrap();
    let next = job(&other).fenced().wait(PATIENCE).acquire().await.unwrap();
    assert!(next.fence() > fence, "{:?} after {fence:?}", next.fence());
    next.release().await.unwrap();
    // Side keys have an hour more to live now.
    clock.set(0.0);
    server.assert_clean();
}

#[tokio::test]
async fn h2_a_waiter_does_not_sleep_for_an_hour() {
    let clock = clock!();
    let server = Server::builder().clock(&clock).start();
    let locks = connect(&server.url()).await;
    // The holder is dead, and its lock has an hour to live by the server's clock.
    server.run::<()>("SET lock:job somebody PX 1000");
    clock.set(-3600.0);
    eventually(PATIENCE, "the lock has an hour more to live", || {
        server.pttl(WIRE).is_some_and(|left| left > 3_000_000)
    });
    let waiting = tokio::spawn(job(&locks).wait(PATIENCE).acquire());
    // It looks once for itself when it listens, and again although the lease has an hour to live.
    until("it listens", || channels(&server) == 1).await;
    let looks = || server.command_counts().get("evalsha").copied().unwrap_or_default();
    let before = looks();
    until("it looks again", || looks() > before + 1).await;
    // The clock is set right again: the waiter must not rely on the first answer.
    clock.set(2.0);
    let start = Instant::now();
    let guard = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < ms(3000), "{:?}", start.elapsed());
    guard.release().await.unwrap();
    clock.set(0.0);
    server.assert_clean();
}

/// Holds the lock, and says when it is lost.
pub(crate) fn hold(io: &mut ChildIo) {
    let locks = open(&std::env::var("REDIS_URL").unwrap());
    let guard = locks.mutex(KEY).ttl(ms(800)).blocking_acquire().unwrap();
    io.say(&format!("holding {}", guard.token()));
    io.hear();
    io.say(&format!("state {:?} {}", guard.state(), guard.remaining().as_millis()));
    guard.blocking_release().unwrap();
    io.say("released");
}

#[test]
fn h4_our_own_wall_clock_does_not_matter() {
    let clock = clock!();
    let server = Server::start();
    let url = server.url();
    let mut child = Child::spawn_with("clock_hold", |command| {
        clock.apply(command);
        command.env("REDIS_URL", &url);
    });
    let token = child.expect("holding");
    for jump in [3600.0, -3600.0, 1e9, 0.0] {
        clock.set(jump);
        holds_for(ms(1200), "it is held and renewed", || {
            let left = server.pttl(WIRE).unwrap_or_default();
            server.get(WIRE).as_ref() == Some(&token) && (1..=800).contains(&left)
        });
    }
    child.tell("");
    let state = child.expect("state");
    let left: u64 = state.strip_prefix("Held ").expect(&state).parse().unwrap();
    assert!((1..=800).contains(&left), "{left} ms left");
    child.expect("released");
    server.assert_clean();
}
