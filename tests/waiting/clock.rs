//! The server's clock jumps while a queue stands: at worst unfair, never stuck.

use std::time::Instant;

use redis_locks::{Guard, LockError};
use testbed::{ClockShim, Server, ServerBuilder, eventually};
use tokio::task::JoinSet;

use crate::support::*;

const WAITING: u64 = 6;

/// Managers that wait in the order of their numbers.
async fn line_up(server: &Server) -> (Guard, JoinSet<(u64, Result<Guard, LockError>)>) {
    let guard = job(&manager(server)).acquire().await.unwrap();
    let mut line = JoinSet::new();
    for place in 1..=WAITING {
        let request = job(&manager(server));
        line.spawn(async move { (place, request.acquire().await) });
        until_queued(server, place);
    }
    (guard, line)
}

/// Lets everyone have a turn, and says in which order they came.
async fn serve_in_turn(mut line: JoinSet<(u64, Result<Guard, LockError>)>) -> Vec<u64> {
    let room = Room::default();
    let mut order = Vec::new();
    while !line.is_empty() {
        let start = Instant::now();
        let (place, guard) = line.join_next().await.unwrap().unwrap();
        let guard = guard.unwrap();
        assert!(start.elapsed() < LOOKED + ms(1000), "{:?} for one turn", start.elapsed());
        room.enter();
        order.push(place);
        room.leave();
        guard.release().await.unwrap();
    }
    order
}

fn in_order() -> Vec<u64> {
    (1..=WAITING).collect()
}

/// The time by the server's clock.
fn seconds_of(server: &Server) -> f64 {
    server.run::<(f64, f64)>("TIME").0
}

/// Sets the clock while a queue stands, and says in which order it was served.
async fn jump(builder: ServerBuilder, seconds: f64) -> Option<Vec<u64>> {
    let Some(clock) = ClockShim::new() else {
        testbed::report_skipped("needs a C compiler");
        return None;
    };
    let server = builder.clock(&clock).start();
    let (guard, mut line) = line_up(&server).await;
    let before = seconds_of(&server);
    clock.set(seconds);
    // A server uses the time that it has read until the next round of its event loop: a lock that
    // it grants by the old time would be over at once.
    eventually(PATIENCE, "the server has seen the jump", || {
        (seconds_of(&server) - before).abs() > seconds.abs() / 2.0
    });
    let late = job(&manager(&server));
    line.spawn(async move { (WAITING + 1, late.acquire().await) });
    if seconds < 0.0 {
        until_queued(&server, WAITING + 1);
    }
    // After a jump past the lease the lock is lost, which its guard does not know yet, and then
    // nothing is released.
    drop(guard);
    let order = serve_in_turn(line).await;
    assert_clean_after_deaths(&server);
    Some(order)
}

async fn l5_a_jump_back_keeps_the_order(builder: ServerBuilder) {
    let Some(order) = jump(builder, -3600.0).await else { return };
    assert_eq!(order[..order.len() - 1], in_order(), "those who were there come in order");
    assert_eq!(order.last(), Some(&(WAITING + 1)), "the newcomer is last");
}

async fn l5_a_jump_forward_beyond_all_places_strands_nobody(builder: ServerBuilder) {
    // The places end, the lease does not.
    let Some(mut order) = jump(builder, 15.0).await else { return };
    order.sort_unstable();
    assert_eq!(order, (1..=WAITING + 1).collect::<Vec<_>>());
}

async fn l5_a_jump_forward_beyond_the_lease_strands_nobody(builder: ServerBuilder) {
    let Some(mut order) = jump(builder, 3600.0).await else { return };
    order.sort_unstable();
    assert_eq!(order, (1..=WAITING + 1).collect::<Vec<_>>());
}

async fn l5_a_clock_that_wavers_strands_nobody(builder: ServerBuilder) {
    let Some(clock) = ClockShim::new() else { testbed::skip!("needs a C compiler") };
    let server = builder.clock(&clock).start();
    let mut random = Random::fresh();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let locks = manager(&server);
        tasks.spawn(async move {
            for _ in 0..100 {
                // A jump beyond the lease is a loss, and said to be one.
                match job(&locks).acquire().await.unwrap().release().await {
                    Ok(()) | Err(LockError::Lost { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let restless = Steadily::each(ms(20), move || {
        // Half an hour to either side: beyond every lease and place.
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        clock.set(random.below(3600) as f64 - 1800.0);
    });
    let start = Instant::now();
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap();
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    drop(restless);
}

on_both_servers!(
    l5_a_jump_back_keeps_the_order,
    l5_a_jump_forward_beyond_all_places_strands_nobody,
    l5_a_jump_forward_beyond_the_lease_strands_nobody,
    l5_a_clock_that_wavers_strands_nobody,
);
