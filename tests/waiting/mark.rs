//! A release that no caller waits for compares and deletes, and does not look into the queue: because
//! of the mark on the value no waiter is forgotten.

use std::thread;
use std::time::{Duration, Instant};

use redis_locks::Locks;
use testbed::{Server, ServerBuilder, eventually};

use crate::support::*;

async fn i6_a_release_that_nobody_waits_for_is_one_command(builder: ServerBuilder) {
    let server = builder.start();
    let locks = manager(&server);
    job(&locks).acquire().await.unwrap().release().await.unwrap();
    let monitor = server.monitor();
    for _ in 0..20 {
        job(&locks).acquire().await.unwrap().release().await.unwrap();
    }
    let count = |name: &str| monitor.count(&format!("\"{name}\""));
    eventually(PATIENCE, "all is recorded", || {
        count("SET") == 20 && count("EVALSHA") + count("DELIFEQ") == 20
    });
    assert_eq!(count("DELIFEQ") > 0, is_native(&server), "by the server's own command, or not");
    server.assert_clean();
}

fn is_native(server: &Server) -> bool {
    server.query::<u64>(redis::cmd("DELIFEQ").arg("~").arg("~")).is_ok()
}

/// Takes and releases, with random pauses; says how often it had to find out by itself that the
/// lock was free.
fn meet_at_random(locks: &Locks, mut random: Random) -> usize {
    let mut late = 0;
    for _ in 0..ROUNDS {
        spin(random.below(2_000));
        let asked = Instant::now();
        let guard = job(locks).blocking_acquire().unwrap();
        late += usize::from(asked.elapsed() > NOTIFIED);
        spin(random.below(500));
        guard.blocking_release().unwrap();
    }
    late
}

const ROUNDS: usize = 400;

/// Timers count in milliseconds, and round trips take less.
fn spin(micros: u64) {
    let end = Instant::now() + Duration::from_micros(micros);
    while Instant::now() < end {
        thread::yield_now();
    }
}

async fn i1_a_waiter_that_comes_at_any_moment_of_a_hold_is_not_forgotten(builder: ServerBuilder) {
    let server = builder.start();
    let mut random = Random::fresh();
    let two: Vec<_> = managers(&server, 2)
        .into_iter()
        .map(|locks| {
            let random = Random::seeded(random.below(u64::MAX));
            thread::spawn(move || meet_at_random(&locks, random))
        })
        .collect();
    let late: usize = two.into_iter().map(|thread| thread.join().unwrap()).sum();
    // On a busy machine some waiters may be late for other reasons; if waiters were forgotten, most
    // would be late.
    assert!(late <= ROUNDS / 50, "{late} of {} waiters found out by themselves", 2 * ROUNDS);
    server.assert_clean();
}

async fn i1_the_mark_is_set_once_and_lets_the_waiter_be_found(builder: ServerBuilder) {
    let server = builder.start();
    let (holder, locks) = (manager(&server), manager(&server));
    let guard = job(&holder).acquire().await.unwrap();
    let token = guard.token().to_string();
    assert_eq!(server.get(WIRE), Some(token.clone()), "no waiter is there");
    let waiting = tokio::spawn(job(&locks).acquire());
    until_queued(&server, 1);
    let marked = Some(format!("{token}+"));
    assert_eq!(server.get(WIRE), marked);
    // One more finds the mark there; and the marked lock is still its holder's.
    let other = manager(&server);
    let another = tokio::spawn(job(&other).acquire());
    until_queued(&server, 2);
    assert_eq!(server.get(WIRE), marked);
    assert!(server.pttl(WIRE).is_some_and(|left| left > 20_000), "the mark kept the lease");
    guard.verify().await.unwrap();
    guard.extend(LONG).await.unwrap();

    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let value = server.get(WIRE).unwrap();
    assert!(value.ends_with('+'), "{value} does not say that a waiter is left");
    guard.release().await.unwrap();
    let guard = another.await.unwrap().unwrap();
    assert_eq!(server.get(WIRE), Some(guard.token().to_string()), "no waiter is left");
    guard.release().await.unwrap();
    server.assert_clean();
}

async fn i1_a_holder_that_was_notified_of_a_waiter_gives_the_lock_away_in_one_step(
    builder: ServerBuilder,
) {
    let server = builder.start();
    let (holder, locks) = (manager(&server), manager(&server));
    // Both receive messages from here on.
    for manager in [&holder, &locks] {
        job(manager).acquire().await.unwrap().release().await.unwrap();
    }
    eventually(PATIENCE, "both listen", || server.run::<Vec<String>>("PUBSUB CHANNELS").len() == 2);
    let monitor = server.monitor();
    // On a busy machine one waiter may have the holder notified twice.
    let notices = || monitor.count("\"w lock:job\"");
    let deletes = || monitor.count("\"DELIFEQ\"") + monitor.count("\"1\" \"lock:job\"");
    let mut vain = 0;
    for _ in 0..10 {
        let guard = job(&holder).acquire().await.unwrap();
        let before = notices();
        let waiting = tokio::spawn(job(&locks).acquire());
        eventually(PATIENCE, "the holder is notified", || notices() > before);
        guard.verify().await.unwrap();
        let before = deletes();
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        vain += deletes() - before;
        guard.release().await.unwrap();
    }
    // The message comes by a connection of its own, so it may be late once in a while.
    assert!(vain <= 5, "{vain} of 10 releases began with a vain attempt to delete");
    server.assert_clean();
}

async fn i7_a_mark_of_somebody_who_left_does_no_harm(builder: ServerBuilder) {
    let server = builder.start();
    let (holder, locks) = (manager(&server), manager(&server));
    for _ in 0..10 {
        let guard = job(&holder).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&locks).acquire());
        until_queued(&server, 1);
        waiting.abort();
        until_queued(&server, 0);
        guard.release().await.unwrap();
        assert_eq!(server.get(WIRE), None, "the release was one, mark or not");
    }
    server.assert_clean();
}

on_both_servers!(
    i6_a_release_that_nobody_waits_for_is_one_command,
    i1_a_waiter_that_comes_at_any_moment_of_a_hold_is_not_forgotten,
    i1_the_mark_is_set_once_and_lets_the_waiter_be_found,
    i1_a_holder_that_was_notified_of_a_waiter_gives_the_lock_away_in_one_step,
    i7_a_mark_of_somebody_who_left_does_no_harm,
);
