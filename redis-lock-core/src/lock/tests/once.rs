//! What is done once: who hears of it, and how it is made known.

use std::time::SystemTime;

use super::*;
use crate::domain::mark::{Mark, MarkKind};
use crate::domain::value::Finish;

const PERIOD: Duration = Duration::from_secs(60);

fn once() -> Demand {
    demand("k").with(|terms| terms.once = Some(PERIOD))
}

impl Bench {
    fn complete(&mut self, hold: &Arc<Hold>) -> Confirmed {
        let (confirm, confirmed) = oneshot::channel();
        let mut confirm = Some(confirm);
        self.step(|machine, env| {
            machine.release(hold, &Finish::Complete(None), || confirm.take(), env)
        });
        confirmed
    }
}

/// The answer that finds the mark of another token.
fn found(kind: MarkKind) -> Outcome {
    let value = Mark::value(kind, Token::fresh("other", "night").wire()).to_string();
    let blocker =
        Blocker { value: Some(value), ttl: Some(PERIOD), queued: true, ..Blocker::unknown() };
    Outcome::Answered(Answer::Busy(blocker))
}

fn keep(reap: &Parted, now: Moment) -> Option<crate::store::Keep> {
    match reap.verb(now) {
        Verb::Release { keep, .. } => keep,
        other => panic!("{other:?}"),
    }
}

#[test]
fn waiters_with_once_get_done_and_the_others_keep_waiting() {
    let mut bench = Bench::new();
    bench.ask(1, once());
    let first = bench.asked();
    assert!(matches!(&first.command.verb, Verb::Acquire(_)), "{first:?}");
    bench.ask(2, demand("k"));
    bench.ask(3, once());
    bench.now += 1;
    bench.ask(4, once());
    bench.answer(&first, found(MarkKind::Done));
    let failed = bench.failed();
    assert_eq!(failed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
    let until =
        |until: &SystemTime| until.duration_since(SystemTime::now()).is_ok_and(|it| it <= PERIOD);
    let done = |error: &LockError| matches!(error, LockError::Done { key, by: Some(by), until: end, .. } if key == "k" && by == "night" && until(end));
    assert!(failed.iter().all(|(_, error)| done(error)), "{failed:?}");
    // The fourth came after the question, so it is asked for anew.
    let second = bench.asked();
    bench.answer(&second, found(MarkKind::Done));
    assert!(matches!(bench.failed().as_slice(), [(4, error)] if done(error)));
    assert!(bench.is_silent(), "the second waits");
    // Who comes later asks at once.
    bench.ask(5, once());
    let third = bench.asked();
    bench.answer(&third, found(MarkKind::Done));
    assert!(matches!(bench.failed().as_slice(), [(5, error)] if done(error)));
    assert!(bench.cancel(2));
    bench.parted();
}

#[test]
fn all_waiting_calls_with_once_get_done() {
    let mut bench = Bench::new();
    (1..=2).for_each(|id| bench.ask(id, once().with(|terms| terms.max_waiters = Some(1))));
    let asked = bench.asked();
    bench.answer(&asked, found(MarkKind::Done));
    let failed = bench.failed();
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|it| matches!(it.1, LockError::Done { .. })), "{failed:?}");
}

#[test]
fn what_min_hold_keeps_is_busy_and_not_done() {
    let mut bench = Bench::new();
    bench.ask(1, once().with(|terms| terms.wait = Wait::None));
    let question = bench.asked();
    bench.answer(&question, found(MarkKind::Kept));
    let [(1, LockError::Busy { holder: Some(holder), .. })] = &*bench.failed() else { panic!() };
    assert!(holder.kept_until.is_some(), "{holder:?}");
    bench.parted();
}

#[test]
fn a_call_without_once_is_told_that_nothing_holds_what_was_done() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.wait = Wait::None));
    for _ in 0..2 {
        // A take, and the script that says who has the lock.
        let question = bench.asked();
        bench.answer(&question, found(MarkKind::Done));
    }
    let failed = bench.failed();
    let [(1, error @ LockError::Busy { holder: Some(holder), .. })] = &*failed else { panic!() };
    assert!(holder.kept_until.is_some(), "{holder:?}");
    let text = error.to_string();
    assert!(text.contains("not held") && text.contains("`once` keeps it until 20"), "{text}");
    assert!(!text.contains("held by"), "{text}");
    bench.parted();
}

#[test]
fn a_complete_of_unknown_outcome_is_repeated_as_one_until_its_period_is_over() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, once());
    let mut confirmed = bench.complete(&hold);
    let mut reap = bench.released();
    let end = hold.since.after(PERIOD);
    let mark = keep(&reap, bench.moment()).unwrap().mark;
    assert_eq!(Mark::read_done(&mark).unwrap().token, hold.token);
    for _ in 0..3 {
        bench.now += 300;
        assert!(reap.outcome(unknown(), bench.moment(), bench.moment()).is_none());
        let again = keep(&reap, bench.moment()).unwrap();
        assert_eq!((&again.mark, again.time), (&mark, end.since(bench.moment())));
    }
    assert_eq!(keep(&reap, end), None, "then the token is released");
    let found = Answer::Gone { by: Some(mark.to_string()), because: None };
    let said = reap.outcome(Outcome::Answered(found), bench.moment(), bench.moment());
    assert!(matches!(said, Some((_, Ok(())))), "an earlier try has left it: {said:?}");
    assert!(confirmed.try_recv().is_err());
}

#[test]
fn a_complete_that_finds_anything_else_was_lost() {
    let other = || Some(Mark::value(MarkKind::Done, Token::fresh("m", "").wire()).to_string());
    for by in [None, other()] {
        for tries in 0..2 {
            let mut bench = Bench::new();
            let hold = bench.hold(1, once());
            let _confirmed = bench.complete(&hold);
            let mut reap = bench.released();
            for _ in 0..tries {
                reap.outcome(unknown(), bench.moment(), bench.moment());
            }
            let gone = Outcome::Answered(Answer::Gone { by: by.clone(), because: None });
            let (_, said) = reap.outcome(gone, bench.moment(), bench.moment()).unwrap();
            assert!(said.is_err_and(|error| error.is_lost()), "{by:?} after {tries}");
        }
    }
}

#[test]
fn one_in_doubt_leaves_a_tombstone_and_is_released_after_the_period() {
    let mut bench = Bench::new();
    bench.ask(1, once().with(|terms| terms.once = Some(secs(3))));
    let first = bench.asked();
    bench.answer(&first, unknown());
    bench.tick(1_000);
    let again = bench.asked();
    bench.answer(&again, got());
    let (_, hold) = bench.granted();
    let _confirmed = bench.complete(&hold);
    let mut reap = bench.released();
    assert!(reap.tombstone(bench.moment()) > Some(secs(25)));
    assert!(reap.outcome(done(), bench.moment(), bench.moment()).is_some());
    assert!(!reap.is_done(), "the acquisition may come later");
    let end = hold.since.after(secs(3));
    assert!(matches!(reap.verb(end), Verb::Release { keep: None, tombstone: Some(_), .. }));
}

#[test]
fn after_the_period_a_complete_just_gives_the_lock_back() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, once().with(|terms| terms.once = Some(millis(RTT))));
    bench.ask(2, demand("k"));
    bench.complete(&hold);
    assert_eq!(bench.grants().len(), 1, "the next one here has it");
}

#[test]
fn after_a_fail_over_it_is_sent_again_as_a_complete() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, once());
    let _confirmed = bench.complete(&hold);
    let now = bench.moment();
    let (_, Next::Done(reap)) = bench.released().take().outcome(done(), now, now) else { panic!() };
    let again = reap.repeated();
    let Verb::Release { keep: Some(keep), .. } = again.command(now).verb else { panic!() };
    assert!(Mark::read_done(&keep.mark).is_some());
    drop(again.give_up());
}
