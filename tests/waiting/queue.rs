//! First come, first served between processes, even when some are killed meanwhile.

use std::env;
use std::time::{Duration, Instant};

use redis_locks::{Guard, Locks};
use testbed::{Child, ChildIo, Server, ServerBuilder, eventually};

use crate::support::*;

const BRIEF: Duration = ms(1500);

/// Waits for the lock, says its fencing number, and keeps the lock until the parent says a word.
pub(crate) fn wait_in_line(io: &mut ChildIo) {
    let locks = Locks::open(env::var("REDIS_URL").unwrap()).unwrap();
    let ttl = if env::var_os("BRIEFLY").is_some() { BRIEF } else { LONG };
    let guard = locks.mutex(KEY).ttl(ttl).fenced().blocking_acquire().unwrap();
    io.say(&format!("got {}", guard.fence().unwrap()));
    io.hear();
    guard.blocking_release().unwrap();
    io.say("released");
    io.hear();
}

/// Puts this many processes into the queue, in order, behind the guard.
fn line_up(server: &Server, count: u64) -> (Guard, Vec<Child>) {
    let guard = job(&manager(server)).fenced().blocking_acquire().unwrap();
    let url = server.url();
    let line = (1..=count).map(|place| {
        let child = Child::spawn("wait_in_line", &[("REDIS_URL", &url)]);
        until_queued(server, place);
        child
    });
    (guard, line.collect())
}

/// Lets each have its turn, and sees that they come in this order. Returns the longest wait for a
/// turn.
fn serve_in_turn(line: Vec<Child>, mut last: u64) -> Duration {
    let mut worst = Duration::ZERO;
    let mut gone = Vec::new();
    let mut start = Instant::now();
    for (place, mut child) in line.into_iter().enumerate() {
        let fence: u64 = child.expect("got").parse().unwrap();
        worst = worst.max(start.elapsed());
        assert!(fence > last, "number {place} had the lock before a waiter that came earlier");
        last = fence;
        start = Instant::now();
        child.tell("go on");
        gone.push(child);
    }
    for mut child in gone {
        child.expect("released");
    }
    worst
}

async fn i6_processes_are_served_in_the_order_of_their_coming(builder: ServerBuilder) {
    let server = builder.start();
    let (guard, line) = line_up(&server, 8);
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    let worst = serve_in_turn(line, fence);
    assert!(worst < LOOKED, "one waited for {worst:?} in its turn");
    server.assert_clean();
}

async fn l4_waiters_killed_in_the_queue_do_not_block_it(builder: ServerBuilder) {
    let server = builder.start();
    let mut random = Random::fresh();
    let (guard, mut line) = line_up(&server, 12);
    let fence = guard.fence().unwrap();
    for _ in 0..8 {
        let victim = usize::try_from(random.below(line.len() as u64)).unwrap();
        line.remove(victim).kill9();
    }
    guard.release().await.unwrap();
    let worst = serve_in_turn(line, fence);
    assert!(worst < LOOKED, "one waited for {worst:?} behind the dead");
    assert_clean_after_deaths(&server);
}

async fn l4_holders_that_die_in_their_turn_cost_their_lease_and_no_order(builder: ServerBuilder) {
    let server = builder.start();
    let locks = manager(&server);
    let guard = locks.mutex(KEY).ttl(LONG).fenced().acquire().await.unwrap();
    let url = server.url();
    let mut line: Vec<Child> = Vec::new();
    for place in 1..=5 {
        line.push(Child::spawn("wait_in_line", &[("REDIS_URL", &url), ("BRIEFLY", "")]));
        until_queued(&server, place);
    }
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    // The first two get it in turn and die of it.
    let mut last = fence;
    for mut child in line.drain(..2) {
        let fence: u64 = child.expect("got").parse().unwrap();
        assert!(fence > last);
        last = fence;
        child.kill9();
    }
    let worst = serve_in_turn(line, last);
    assert!(worst < BRIEF + ms(1500), "one waited for {worst:?} behind the dead");
    assert_clean_after_deaths(&server);
}

async fn l4_a_frozen_waiter_costs_its_claim_and_comes_later(builder: ServerBuilder) {
    let server = builder.start();
    let (guard, mut line) = line_up(&server, 3);
    let fence = guard.fence().unwrap();
    // It is connected, so it is granted the lock; but it can't claim it.
    line[0].freeze();
    let start = Instant::now();
    guard.release().await.unwrap();
    let second: u64 = line[1].expect("got").parse().unwrap();
    let took = start.elapsed();
    assert!(took < ms(1000) + LOOKED, "{took:?} behind a frozen waiter");
    assert!(second > fence);
    // It wakes up, and does not rely on the grant, which has ended.
    line[0].thaw();
    eventually(PATIENCE, "the frozen one waits again", || {
        let queued: u64 = server.run(&format!("ZCARD {QUEUE}"));
        queued == 2
    });
    line[1].tell("go on");
    let third: u64 = line[2].expect("got").parse().unwrap();
    assert!(third > second);
    line[2].tell("go on");
    let last: u64 = line[0].expect("got").parse().unwrap();
    assert!(last > third);
    line[0].tell("go on");
    for child in &mut line {
        child.expect("released");
    }
    server.assert_clean();
}

on_both_servers!(
    i6_processes_are_served_in_the_order_of_their_coming,
    l4_waiters_killed_in_the_queue_do_not_block_it,
    l4_holders_that_die_in_their_turn_cost_their_lease_and_no_order,
    l4_a_frozen_waiter_costs_its_claim_and_comes_later,
);
