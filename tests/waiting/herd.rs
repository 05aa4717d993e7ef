//! One release wakes one of those who wait, however many they are.

use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError};
use testbed::{Server, ServerBuilder, eventually};
use tokio::task::JoinSet;

use crate::support::*;

const WAITING: u64 = 200;

/// Calls of scripts by all clients so far.
fn calls(server: &Server) -> u64 {
    server.command_counts().get("evalsha").copied().unwrap_or(0)
}

/// The most looks that all of them take by themselves: each at least three quarters of a second
/// after its last one.
fn looks(time: Duration) -> u64 {
    WAITING * u64::try_from(time.as_millis() / 750 + 1).unwrap()
}

async fn i6_one_release_wakes_one_of_200_managers(builder: ServerBuilder) {
    let _alone = alone().await;
    let server = builder.start();
    let holder = manager(&server);
    let guard = job(&holder).acquire().await.unwrap();
    let mut waiting: JoinSet<Result<Guard, LockError>> = JoinSet::new();
    for locks in managers(&server, usize::try_from(WAITING).unwrap()) {
        waiting.spawn(job(&locks).acquire());
    }
    until_queued(&server, WAITING);
    // Waiters that came before their own subscription look once more when it begins; after that no
    // commands are sent.
    eventually(PATIENCE, "all receive messages", || {
        let channels: Vec<String> = server.run("PUBSUB CHANNELS lock:~m:*");
        channels.len() as u64 == WAITING + 1
    });

    let monitor = server.monitor();
    guard.release().await.unwrap();
    let mut owner = waiting.join_next().await.unwrap().unwrap().unwrap();
    let token = owner.token().to_string();
    eventually(PATIENCE, "the owner's claim is recorded, and so all that went before", || {
        let claim = |line: &String| line.contains("\"EVALSHA\"") && line.contains(&token);
        monitor.lines().iter().any(claim)
    });
    assert_eq!(monitor.count("\"PUBLISH\" \"lock:~m:"), 1, "one release tells one waiter");
    drop(monitor);

    let (start, before) = (Instant::now(), calls(&server));
    while !waiting.is_empty() {
        owner.release().await.unwrap();
        owner = waiting.join_next().await.unwrap().unwrap().unwrap();
    }
    owner.release().await.unwrap();
    let (took, calls) = (start.elapsed(), calls(&server) - before);
    // Each release is at most two calls, each claim is one; a herd would be 200 times 200.
    let most = 3 * WAITING + looks(took) + 10;
    assert!(calls <= most, "{calls} calls to hand the lock on {WAITING} times in {took:?}");
    drop(holder);
    server.assert_clean();
}

on_both_servers!(i6_one_release_wakes_one_of_200_managers);
