//! Messages are hints: waiters get along without them, and are not led astray by false ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_locks::{Guard, LockError, Locks};
use testbed::{Server, ServerBuilder, eventually, holds_for};
use tokio::task::JoinHandle;

use crate::support::*;

type Waiting = JoinHandle<Result<Guard, LockError>>;

/// The manager's channel, when it listens.
fn channel_of(server: &Server, guard: &Guard) -> String {
    let token = guard.token().to_string();
    let manager = token.split('.').nth(2).expect("a token names its manager");
    let channel = format!("lock:~m:{manager}");
    eventually(PATIENCE, "the manager listens", || {
        let (_, count): (String, u64) = server.run(&format!("PUBSUB NUMSUB {channel}"));
        count == 1
    });
    channel
}

/// Publishes each millisecond, on a connection of its own.
fn flood(
    server: &Server,
    channel: &str,
    mut payload: impl FnMut() -> String + Send + 'static,
) -> Steadily {
    let mut connection = server.client().get_connection().unwrap();
    let channel = channel.to_owned();
    Steadily::each(ms(1), move || {
        redis::cmd("PUBLISH").arg(&channel).arg(payload()).exec(&mut connection).unwrap();
    })
}

/// The manager that waits, its channel, and the token it is queued with.
async fn start_waiting(server: &Server) -> (Locks, String, Waiting, String) {
    let locks = manager(server);
    let other = locks.mutex("other").acquire().await.unwrap();
    let channel = channel_of(server, &other);
    other.release().await.unwrap();
    let waiting = tokio::spawn(job(&locks).acquire());
    until_queued(server, 1);
    let token: Vec<String> = server.run(&format!("ZRANGE {QUEUE} 0 0"));
    (locks, channel, waiting, token.concat())
}

async fn i11_a_subscriber_that_is_cut_off_for_being_slow_gets_its_lock(builder: ServerBuilder) {
    let server = builder.start();
    let holder = manager(&server);
    let guard = job(&holder).acquire().await.unwrap();
    let (_locks, channel, waiting, _) = start_waiting(&server).await;
    server
        .query::<()>(redis::cmd("CONFIG").arg(&[
            "SET",
            "client-output-buffer-limit",
            "pubsub 1 1 1",
        ]))
        .unwrap();
    // More than the server keeps for a client beside the buffer whose size is limited.
    let payload = "x".repeat(100_000);
    let flood = flood(&server, &channel, move || payload.clone());
    eventually(PATIENCE, "the server cuts the subscriber off", || {
        server.log().contains("output buffer limits")
    });
    server.reset_counts();
    holds_for(ms(3000), "what is held is not granted", || !waiting.is_finished());
    let counts = server.command_counts();
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert!(count("subscribe") <= 30, "{} subscriptions in 3 s", count("subscribe"));
    assert!(count("evalsha") <= 40, "{} tries in 3 s", count("evalsha"));

    let start = std::time::Instant::now();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < LOOKED, "{:?} after the release", start.elapsed());
    flood.stop();
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn i12_forged_and_foreign_messages_grant_nothing(builder: ServerBuilder) {
    let server = builder.start();
    let holder = manager(&server);
    let guard = job(&holder).acquire().await.unwrap();
    let held = guard.token().to_string();
    let (_locks, channel, waiting, queued) = start_waiting(&server).await;
    let own = channel_of(&server, &guard);
    let mut random = Random::fresh();
    let garbage = flood(&server, &channel, {
        let (held, queued) = (held.clone(), queued.clone());
        move || match random.below(8) {
            0 => format!("g {queued}"),
            1 => format!("r {queued}"),
            2 => format!("g {held}"),
            3 => "g rl1.00000000000000000000000000000000.000000000000.0.nobody".into(),
            4 => "g ".into(),
            5 => String::new(),
            6 => "\0\u{feff}g g g".into(),
            _ => "r".repeat(1_000),
        }
    });
    // The holder is notified that its lock was taken from it.
    let alarms = flood(&server, &own, move || format!("r {held}"));
    let got = Arc::new(AtomicBool::new(false));
    let waiting = tokio::spawn({
        let got = Arc::clone(&got);
        async move {
            let guard = waiting.await.unwrap().unwrap();
            got.store(true, Ordering::SeqCst);
            guard
        }
    });
    server.reset_counts();
    holds_for(ms(3000), "the holder keeps the lock, the waiter waits", || {
        guard.is_held() && !got.load(Ordering::SeqCst)
    });
    let calls = server.command_counts().get("evalsha").copied().unwrap_or(0);
    assert!(calls <= MISLED, "{calls} calls in 3 s");

    let start = std::time::Instant::now();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(start.elapsed() < LOOKED, "{:?} after the release", start.elapsed());
    assert!(garbage.stop() > 1_000 && alarms.stop() > 1_000, "the flood was none");
    guard.release().await.unwrap();
    server.assert_clean();
}

/// How many looks 6,000 forged messages may cause in three seconds.
const MISLED: u64 = 1_500;

on_both_servers!(
    i11_a_subscriber_that_is_cut_off_for_being_slow_gets_its_lock,
    i12_forged_and_foreign_messages_grant_nothing,
);
