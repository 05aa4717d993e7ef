//! A margin: the server keeps the key for longer than the guard believes in its lease.

use super::*;
use crate::{LockState, LossReason};

fn with_margin() -> Demand {
    demand("k").with(|terms| terms.margin = secs(5))
}

/// The lease that a question asks for.
fn asked_lease(question: &Question) -> Option<Duration> {
    match &question.command.verb {
        Verb::Take { ttl, .. } | Verb::Renew { ttl, .. } => *ttl,
        Verb::Acquire(acquire) => acquire.ttl,
        other => panic!("{other:?}"),
    }
}

/// A hold whose lease ran out while the server refused every renewal.
fn lapsed() -> (Bench, Arc<Hold>) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, with_margin());
    while bench.moment() < hold.deadline() {
        bench.tick(100);
        for renew in bench.questions() {
            bench.settle(&renew, refused());
        }
    }
    assert_eq!(hold.loss(bench.moment()), Some(LossReason::Expired));
    (bench, hold)
}

#[test]
fn the_server_is_asked_for_the_margin_and_the_guard_does_not_believe_in_it() {
    let mut bench = Bench::new();
    let sent = bench.moment();
    bench.ask(1, with_margin());
    let take = bench.asked();
    assert_eq!(asked_lease(&take), Some(secs(35)));
    bench.answer(&take, got());
    let hold = bench.granted().1;
    assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))));
    bench.tick(10_001);
    let (sent, renew) = (bench.moment(), bench.asked());
    assert_eq!(asked_lease(&renew), Some(secs(35)));
    bench.answer(&renew, done());
    assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))));
    drop(bench.release(&hold));
    assert_eq!(bench.parted().len(), 1, "a release frees the lock at once");
}

#[test]
fn a_hold_that_has_lapsed_is_released_when_its_guard_is_dropped() {
    let (mut bench, hold) = lapsed();
    assert!(bench.parted().is_empty(), "the guard may still act");
    assert!(!bench.machine.is_idle());
    drop(bench.release(&hold));
    assert_eq!(bench.parted().len(), 1);
    assert!(bench.machine.is_idle());
}

#[test]
fn a_hold_that_has_lapsed_unnoticed_is_released_before_a_waiter_asks() {
    for is_detached in [false, true] {
        let mut bench = Bench::new();
        let hold = bench.hold(1, with_margin());
        bench.ask(2, with_margin());
        bench.now += 31_000;
        if is_detached {
            assert!(bench.step(|machine, env| machine.detach(&hold, false, env)).is_none());
        } else {
            drop(bench.release(&hold));
        }
        let out = &bench.effects.out;
        assert!(matches!(out[..], [Outgoing::Part(_), Outgoing::Ask(_)]), "{out:?}");
        bench.cancel(2);
        assert_eq!((bench.parted().len(), bench.questions().len()), (2, 1));
    }
}

#[test]
fn a_hold_that_has_lapsed_is_released_when_its_guard_gives_it_away() {
    let (mut bench, hold) = lapsed();
    assert_eq!(bench.step(|machine, env| machine.detach(&hold, false, env)), None);
    assert_eq!(bench.parted().len(), 1, "no guard is left that could act");
    assert!(bench.machine.is_idle());
}

#[test]
fn what_a_leaked_guard_leaves_is_forgotten_when_the_server_has_forgotten_it() {
    let (mut bench, _hold) = lapsed();
    assert!(bench.machine.due() <= bench.moment().after(secs(36)));
    bench.tick(36_000);
    assert_eq!(bench.parted().len(), 1);
    assert!(bench.machine.is_idle());
}

#[test]
fn waiters_of_the_same_process_wait_for_the_margin_at_the_server() {
    let (mut bench, hold) = lapsed();
    bench.ask(2, with_margin());
    let take = bench.asked();
    assert_ne!(take.command.verb.token(), Some(hold.token.wire()));
    bench.answer(&take, busy_unknown());
    let queue = bench.asked();
    bench.answer(&queue, busy_with(Some(secs(5))));
    drop(bench.release(&hold));
    assert!(bench.released().says_waited_for());
    bench.cancel(2);
    assert_eq!(bench.parted().len(), 1);
}

#[test]
fn a_shutdown_releases_what_has_lapsed() {
    let (mut bench, _hold) = lapsed();
    bench.step(|machine, env| machine.close(&LockError::Shutdown, &LossReason::Shutdown, env));
    assert_eq!(bench.parted().len(), 1);
}

#[test]
fn what_the_server_says_to_be_gone_needs_no_margin() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, with_margin());
    bench.tick(10_001);
    let renew = bench.asked();
    bench.answer(&renew, gone());
    assert_eq!(hold.state(bench.moment()), LockState::Lost);
    assert!(bench.machine.is_idle());
}

#[test]
fn a_lease_with_another_margin_is_not_passed_on() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, with_margin());
    bench.ask(2, demand("k"));
    drop(bench.release(&hold));
    assert_eq!(bench.parted().len(), 1, "the next waiter asks for a lease of its own");
    assert_eq!(asked_lease(&bench.asked()), Some(secs(30)));
    bench.cancel(2);
    bench.parted();
}
