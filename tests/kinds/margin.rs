//! A margin, for holders that are stopped for longer than their lease.

use std::time::{Duration, Instant};

use redis_locks::{LockError, LockState, Locks};
use testbed::{Child, ChildIo, Server, eventually};

use crate::arena::*;

/// The lease of the holder.
const LEASE: Duration = ms(600);

fn spawn(server: &Server, margin: Duration) -> Child {
    let margin = margin.as_millis().to_string();
    let mut child =
        Child::spawn("margin_holder", &[("SERVER", &server.url()), ("MARGIN", &margin)]);
    child.expect("holding");
    child
}

/// Holds the lock, notices the loss, and drops the guard only when the parent says so.
pub(crate) fn holder(io: &mut ChildIo) {
    let locks = Locks::open(std::env::var("SERVER").unwrap()).unwrap();
    let margin = ms(std::env::var("MARGIN").unwrap().parse().unwrap());
    let guard = take(locks.mutex("k").ttl(LEASE).margin(margin));
    io.say("holding");
    eventually(PATIENCE, "it is lost", || guard.state() == LockState::Lost);
    io.say("lost");
    io.hear();
    drop(guard);
    locks.blocking_shutdown();
    io.say("ended");
}

#[test]
fn a_holder_stopped_for_less_than_the_margin_does_not_overlap() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let mut child = spawn(&server, ms(60_000));
    child.freeze();
    let busy = locks.mutex("k").wait(LEASE * 3).blocking_acquire();
    assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
    child.thaw();
    child.expect("lost");
    let busy = locks.mutex("k").wait(ms(300)).blocking_acquire();
    assert!(matches!(busy, Err(LockError::Busy { .. })), "its guard lives: {busy:?}");
    child.tell("drop it");
    let began = Instant::now();
    let next = locks.mutex("k").wait(PATIENCE).blocking_acquire().unwrap();
    assert!(began.elapsed() < ms(10_000), "the guard was dropped: {:?}", began.elapsed());
    child.expect("ended");
    next.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_holder_stopped_without_a_margin_overlaps() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let mut child = spawn(&server, ms(0));
    child.freeze();
    let next = locks.mutex("k").wait(LEASE * 3).blocking_acquire();
    assert!(next.is_ok(), "{next:?}");
    child.thaw();
    child.expect("lost");
    child.tell("drop it");
    child.expect("ended");
    assert!(next.unwrap().is_held(), "the release of the first changes nothing");
}

#[test]
fn a_margin_shows_in_the_lease_at_the_server_and_not_in_the_guard() {
    for arena in Arena::each() {
        let guard = take(arena.one.mutex("k").ttl(ms(2_000)).margin(ms(60_000)));
        assert!(guard.remaining() <= ms(2_000), "{}", arena.name);
        let shown = arena.other.blocking_status("k").unwrap();
        let left = shown.holders[0].ttl.unwrap();
        assert!(left > ms(50_000) && left <= ms(62_000), "{}: {left:?}", arena.name);
        guard.blocking_release().unwrap();
        take(arena.other.mutex("k").no_wait()).blocking_release().unwrap();
    }
}

#[test]
fn a_margin_that_means_nothing_is_refused() {
    let day = Duration::from_secs(24 * 60 * 60);
    let locks = Locks::builder().in_memory().margin(ms(5_000)).open().unwrap();
    for wrong in
        [locks.mutex("k").margin(day + ms(1)), locks.mutex("k").never_expires().margin(day)]
    {
        let refused = wrong.blocking_acquire();
        assert!(matches!(refused, Err(LockError::InvalidConfig { .. })), "{refused:?}");
    }
    assert!(Locks::builder().in_memory().margin(day * 2).open().is_err());
    locks.mutex("k").never_expires().blocking_acquire().unwrap().blocking_release().unwrap();
    locks.mutex("k").margin(day).blocking_acquire().unwrap().blocking_release().unwrap();
}
