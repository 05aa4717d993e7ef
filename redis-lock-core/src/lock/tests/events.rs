//! What is reported to those who listen.

use super::*;
use crate::domain::status::{AskOutcome, IdleEnd, IdleEvent};

impl Bench {
    /// A machine that a subscriber listens to.
    fn listening() -> Self {
        let mut bench = Self::new();
        bench.effects.listening = true;
        bench
    }
}

/// What happened to leases that linger since the last look.
fn idle_events(bench: &mut Bench) -> Vec<IdleEvent> {
    let event = |later: &Later<u64>| match observed(later) {
        Some(Observation::Idle(_, event)) => Some(*event),
        _ => None,
    };
    let later = bench.effects.later.extract_if(.., |later| event(later).is_some());
    later.filter_map(|later| event(&later)).collect()
}

/// How many events of this sort there were since the last look.
fn count(bench: &mut Bench, is_it: fn(&Later<u64>) -> bool) -> usize {
    bench.effects.later.extract_if(.., |later| is_it(later)).count()
}

fn lingering() -> Demand {
    demand("k").with(|terms| terms.linger = Some(secs(60)))
}

/// A lease that has begun to linger.
fn kept() -> Bench {
    let mut bench = Bench::listening();
    let hold = bench.hold(1, lingering());
    assert_eq!(idle_events(&mut bench), []);
    bench.release(&hold);
    assert_eq!(idle_events(&mut bench), [IdleEvent::Began]);
    bench
}

/// What ends a lease that lingers.
type Ends = fn(&mut Bench);

#[test]
fn the_end_of_a_lease_that_lingers_is_reported_with_its_reason() {
    let ends: [(Ends, IdleEnd); 8] = [
        (|bench| bench.step(Machine::on_connected), IdleEnd::Trouble),
        (|bench| bench.somebody_waits(), IdleEnd::Asked),
        (|bench| bench.ask(2, demand("k").with(|terms| terms.ttl = Some(secs(5)))), IdleEnd::Terms),
        (|bench| failed_renewal(bench, refused()), IdleEnd::Trouble),
        (|bench| failed_renewal(bench, gone()), IdleEnd::Trouble),
        (|bench| bench.tick(60_000), IdleEnd::Over),
        (|bench| bench.tick(40_000), IdleEnd::Trouble),
        (
            |bench| {
                let since = bench.machine.idle_since().unwrap();
                bench.step(|machine, env| machine.make_room(since, env));
            },
            IdleEnd::Limit,
        ),
    ];
    for (index, (ends, why)) in ends.into_iter().enumerate() {
        let mut bench = kept();
        ends(&mut bench);
        assert_eq!(idle_events(&mut bench), [IdleEvent::Ended(why)], "case {index}");
    }
    let mut bench = kept();
    bench.step(|machine, env| machine.close(&LockError::Shutdown, &LossReason::Shutdown, env));
    assert_eq!(idle_events(&mut bench), [IdleEvent::Ended(IdleEnd::Shutdown)]);
}

fn failed_renewal(bench: &mut Bench, outcome: Outcome) {
    bench.tick(10_001);
    let renew = bench.asked();
    bench.answer(&renew, outcome);
}

#[test]
fn a_lease_that_is_taken_again_is_reported() {
    let mut bench = kept();
    bench.ask(2, lingering());
    bench.granted();
    assert_eq!(idle_events(&mut bench), [IdleEvent::TakenAgain]);
}

/// The reported outcome of asking a holder, when the look that follows `hint` is answered by
/// `last`.
fn asked_holder(hint: bool, last: Outcome) -> Vec<IdleEvent> {
    let mut bench = Bench::listening();
    let Outcome::Answered(Answer::Busy(blocker)) = busy_with(Some(secs(20))) else {
        panic!("it is not busy")
    };
    let asked = Outcome::Answered(Answer::Busy(Blocker { asked: true, ..blocker }));
    bench.contend(1, impatient(), asked);
    if hint {
        let token = bench.machine.awaited().map(ToString::to_string).unwrap();
        bench.hinted(&token);
    } else {
        bench.tick(60);
    }
    let question = bench.asked();
    assert_eq!(idle_events(&mut bench), []);
    bench.answer(&question, last);
    idle_events(&mut bench)
}

#[test]
fn what_a_holder_that_was_asked_did_is_reported() {
    let busy = || busy_with(Some(secs(20)));
    assert_eq!(asked_holder(true, got()), [IdleEvent::Asked(AskOutcome::HandedOver)]);
    assert_eq!(asked_holder(false, got()), [IdleEvent::Asked(AskOutcome::HandedOver)]);
    assert_eq!(asked_holder(true, busy()), [IdleEvent::Asked(AskOutcome::InUse)]);
    assert_eq!(asked_holder(false, busy()), [IdleEvent::Asked(AskOutcome::Silent)]);
}

#[test]
fn a_holder_that_was_not_asked_did_nothing() {
    let mut bench = Bench::listening();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    bench.tick(1_000);
    let question = bench.asked();
    bench.answer(&question, got());
    bench.granted();
    assert_eq!(idle_events(&mut bench), []);
}

#[test]
fn a_contended_lock_is_reported_once_for_each_wait() {
    let is_it = |later: &Later<u64>| matches!(observed(later), Some(Observation::Contended(..)));
    let mut bench = Bench::listening();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    assert_eq!(count(&mut bench, is_it), 1);
    // The same holder, another one, and the server in between.
    for answer in [busy_with(None), busy_with(None), busy_unknown(), refused(), refused()] {
        bench.tick(2_000);
        let question = bench.asked();
        bench.answer(&question, answer);
    }
    assert_eq!(count(&mut bench, is_it), 0);
    let mut bench = Bench::new();
    bench.contend(1, demand("k"), busy_with(Some(secs(20))));
    assert_eq!(count(&mut bench, is_it), 0, "nobody listens");
}

#[test]
fn renewals_and_missed_renewals_are_reported() {
    let renewed = |later: &Later<u64>| matches!(observed(later), Some(Observation::Renewed(_)));
    let missed = |later: &Later<u64>| matches!(observed(later), Some(Observation::Missed { .. }));
    for listening in [true, false] {
        let mut bench = Bench::new();
        bench.effects.listening = listening;
        let _hold = bench.hold(1, demand("k"));
        bench.tick(10_001);
        let renew = bench.asked();
        bench.answer(&renew, done());
        assert_eq!(count(&mut bench, renewed), usize::from(listening));
        assert_eq!(count(&mut bench, missed), 0);
        bench.tick(10_001);
        let renew = bench.asked();
        bench.answer(&renew, refused());
        assert_eq!((count(&mut bench, renewed), count(&mut bench, missed)), (0, 1));
    }
}

#[test]
fn a_renewal_that_fails_again_and_again_is_missed_once() {
    let missed = |later: &Later<u64>| matches!(observed(later), Some(Observation::Missed { .. }));
    let mut bench = Bench::new();
    let _hold = bench.hold(1, demand("k"));
    for _ in 0..2 {
        bench.tick(10_001);
        let mut tries = 0;
        for failure in [refused(), unknown(), refused()] {
            let renew = bench.asked();
            bench.answer(&renew, failure);
            tries += count(&mut bench, missed);
            bench.tick(2_000);
        }
        assert_eq!(tries, 1);
        let renew = bench.asked();
        bench.answer(&renew, done());
    }
}
