//! Processes that are killed while they have a lock that is no mutex, or wait for one: those that live
//! get in when the lease or the place of the dead has ended, and no other caller notices.

use std::env;
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockRequest, Locks};
use testbed::{Child, ChildIo, ClockShim, Server, ServerBuilder, eventually};

use crate::support::*;

/// The lease of holders that are killed.
const TTL: Duration = ms(1_500);

/// What it may take after that until the next one is in.
const MORE: Duration = ms(1_000);

/// A request of this kind for [`KEY`], among others.
fn request(locks: &Locks, kind: &str) -> LockRequest {
    match kind {
        "mutex" => locks.mutex(KEY),
        "read" => locks.read(KEY),
        "write" => locks.write(KEY),
        "permit" => locks.permit(KEY, 2),
        "all" => locks.all([KEY, "other"]),
        "all from before" => locks.all(["before", KEY]),
        kind => panic!("no kind is called {kind}"),
    }
}

/// Gets a lock of the kind that the parent names, and holds it until the parent sends a line.
pub(crate) fn have(io: &mut ChildIo) {
    let locks = Locks::open(env::var("REDIS_URL").unwrap()).unwrap();
    let guard = request(&locks, &env::var("KIND").unwrap()).ttl(TTL).blocking_acquire().unwrap();
    io.say("got it");
    io.hear();
    guard.blocking_release().unwrap();
    io.say("released");
    io.hear();
}

fn child(server: &Server, kind: &str) -> Child {
    Child::spawn("have", &[("REDIS_URL", &server.url()), ("KIND", kind)])
}

fn holder(server: &Server, kind: &str) -> Child {
    let mut child = child(server, kind);
    child.expect("got it");
    child
}

/// A child that waits behind so many others.
fn waiter(server: &Server, kind: &str, before: u64) -> Child {
    let child = child(server, kind);
    until_queued(server, before + 1);
    until_all_listen(server);
    child
}

/// Waits until all in the queue can be notified. A waiter that is not subscribed yet is granted the
/// lock without a check whether it lives, and costs a claim when it is dead.
#[track_caller]
fn until_all_listen(server: &Server) {
    eventually(PATIENCE, "all listen", || {
        let waiters: Vec<String> = server.run("HVALS lock:{lock:job}:~w");
        !waiters.iter().any(|waiter| waiter.ends_with(" -"))
    });
}

fn take(server: &Server, kind: &str) -> Guard {
    request(&manager(server), kind).ttl(LONG).wait(PATIENCE).blocking_acquire().unwrap()
}

#[track_caller]
fn must_get_it_within(child: &mut Child, since: Instant, most: Duration) {
    child.expect("got it");
    let took = since.elapsed();
    assert!(took < most, "it got in after {took:?}, and {most:?} were allowed");
}

#[track_caller]
fn must_end_well(mut children: Vec<Child>) {
    for child in &mut children {
        child.tell("go on");
        child.expect("released");
    }
}

async fn l4_a_killed_reader_costs_its_lease_and_no_other_reader(builder: ServerBuilder) {
    let server = builder.start();
    let lives = take(&server, "read");
    let mut dies = holder(&server, "read");
    let mut writer = waiter(&server, "write", 0);
    dies.kill9();
    let killed = Instant::now();
    lives.verify().await.unwrap();
    lives.release().await.unwrap();
    must_get_it_within(&mut writer, killed, TTL + MORE);
    must_end_well(vec![writer]);
    assert_clean_after_deaths(&server);
}

async fn l4_a_killed_writer_lets_all_readers_in(builder: ServerBuilder) {
    let server = builder.start();
    let mut dies = holder(&server, "write");
    let mut readers: Vec<_> = (0..3).map(|place| waiter(&server, "read", place)).collect();
    dies.kill9();
    let killed = Instant::now();
    for reader in &mut readers {
        must_get_it_within(reader, killed, TTL + MORE);
    }
    must_end_well(readers);
    assert_clean_after_deaths(&server);
}

async fn l4_a_killed_waiting_writer_lets_the_readers_behind_it_in(builder: ServerBuilder) {
    let server = builder.start();
    let lives = take(&server, "read");
    let mut dies = waiter(&server, "write", 0);
    let mut readers = vec![waiter(&server, "read", 1), waiter(&server, "read", 2)];
    dies.kill9();
    let killed = Instant::now();
    for reader in &mut readers {
        // They look once a second, and find that no waiter is before them.
        must_get_it_within(reader, killed, LOOK + MORE);
    }
    lives.verify().await.unwrap();
    must_end_well(readers);
    lives.release().await.unwrap();
    assert_clean_after_deaths(&server);
}

async fn l4_a_killed_waiting_writer_costs_a_release_nothing(builder: ServerBuilder) {
    let server = builder.start();
    let lives = take(&server, "write");
    let mut dies = waiter(&server, "write", 0);
    let mut next = waiter(&server, "write", 1);
    dies.kill9();
    let killed = Instant::now();
    lives.release().await.unwrap();
    // It can't be notified, which the server says at once.
    must_get_it_within(&mut next, killed, MORE);
    must_end_well(vec![next]);
    assert_clean_after_deaths(&server);
}

async fn l4_a_killed_holder_and_a_killed_waiter_give_their_permit_on(builder: ServerBuilder) {
    let server = builder.start();
    let lives = take(&server, "permit");
    let mut dies = holder(&server, "permit");
    let mut dies_too = waiter(&server, "permit", 0);
    let mut next = waiter(&server, "permit", 1);
    let mut last = waiter(&server, "permit", 2);
    dies.kill9();
    dies_too.kill9();
    let killed = Instant::now();
    must_get_it_within(&mut next, killed, TTL + MORE);
    lives.verify().await.unwrap();
    let released = Instant::now();
    lives.release().await.unwrap();
    must_get_it_within(&mut last, released, MORE);
    must_end_well(vec![next, last]);
    assert_clean_after_deaths(&server);
}

async fn l4_a_killed_holder_of_several_keys_frees_each(builder: ServerBuilder) {
    let server = builder.start();
    let mut dies = holder(&server, "all");
    let mut dies_too = waiter(&server, "all", 0);
    let mut mutex = waiter(&server, "mutex", 1);
    let mut all = waiter(&server, "all from before", 2);
    let locks = manager(&server);
    let other = tokio::spawn(async move { locks.mutex("other").wait(PATIENCE).acquire().await });
    eventually(PATIENCE, "the other key is waited for", || {
        server.run::<u64>("ZCARD lock:{lock:other}:~q") == 1
    });
    dies.kill9();
    dies_too.kill9();
    let killed = Instant::now();
    must_get_it_within(&mut mutex, killed, TTL + MORE);
    let other = other.await.unwrap().unwrap();
    assert!(killed.elapsed() < TTL + MORE, "{:?}", killed.elapsed());
    let released = Instant::now();
    must_end_well(vec![mutex]);
    must_get_it_within(&mut all, released, MORE);
    must_end_well(vec![all]);
    other.release().await.unwrap();
    assert_clean_after_deaths(&server);
}

async fn l4_what_a_killed_waiter_kept_is_free_when_its_place_ends(builder: ServerBuilder) {
    let server = builder.start();
    let lives = take(&server, "mutex");
    let mut dies = waiter(&server, "all from before", 0);
    eventually(PATIENCE, "it keeps what comes first", || server.exists("lock:before"));
    dies.kill9();
    let killed = Instant::now();
    let before = manager(&server).mutex("before").wait(PATIENCE).acquire().await.unwrap();
    assert!(killed.elapsed() < PLACE + MORE, "{:?}", killed.elapsed());
    lives.verify().await.unwrap();
    let mut next = waiter_behind_the_dead(&server, "mutex");
    let released = Instant::now();
    lives.release().await.unwrap();
    must_get_it_within(&mut next, released, MORE);
    must_end_well(vec![next]);
    before.release().await.unwrap();
    assert_clean_after_deaths(&server);
}

/// A child that waits beside others.
fn waiter_behind_the_dead(server: &Server, kind: &str) -> Child {
    let last = || -> Vec<String> { server.run(&format!("ZRANGE {QUEUE} -1 -1")) };
    let before = last();
    let child = child(server, kind);
    eventually(PATIENCE, "it is in the queue", || !last().is_empty() && last() != before);
    until_all_listen(server);
    child
}

/// The clock jumps while one waits that has been killed, and one that lives.
async fn jump(builder: ServerBuilder, seconds: f64) {
    for (held, kind) in [("write", "read"), ("read", "write"), ("permit", "permit"), ("all", "all")]
    {
        let Some(clock) = ClockShim::new() else { testbed::skip!("needs a C compiler") };
        let server = builder.clone().clock(&clock).start();
        let mut held = vec![take(&server, held)];
        if kind == "permit" {
            held.push(take(&server, kind));
        }
        let mut dies = waiter(&server, kind, 0);
        let mut next = waiter(&server, kind, 1);
        dies.kill9();
        clock.set(seconds);
        // After a jump past their leases the locks are lost, which the holders do not know yet.
        drop(held);
        let released = Instant::now();
        must_get_it_within(&mut next, released, PLACE + MORE);
        must_end_well(vec![next]);
        // After a jump back the dead one's place would last for an hour more.
        if seconds > 0.0 {
            assert_clean_after_deaths(&server);
        }
    }
}

async fn l5_a_jump_back_and_a_dead_waiter_strand_nobody(builder: ServerBuilder) {
    jump(builder, -3600.0).await;
}

async fn l5_a_jump_forward_and_a_dead_waiter_strand_nobody(builder: ServerBuilder) {
    jump(builder, 3600.0).await;
}

on_both_servers!(
    l4_a_killed_reader_costs_its_lease_and_no_other_reader,
    l4_a_killed_writer_lets_all_readers_in,
    l4_a_killed_waiting_writer_lets_the_readers_behind_it_in,
    l4_a_killed_waiting_writer_costs_a_release_nothing,
    l4_a_killed_holder_and_a_killed_waiter_give_their_permit_on,
    l4_a_killed_holder_of_several_keys_frees_each,
    l4_what_a_killed_waiter_kept_is_free_when_its_place_ends,
    l5_a_jump_back_and_a_dead_waiter_strand_nobody,
    l5_a_jump_forward_and_a_dead_waiter_strand_nobody,
);
