//! Asking a holder that may be idle, for a caller that does not wait.

use super::*;
use crate::Token;

/// The outcome of a question that asked the holder.
fn asked_holder() -> Outcome {
    let Outcome::Answered(Answer::Busy(blocker)) = busy_with(Some(secs(20))) else {
        panic!("it is not busy")
    };
    Outcome::Answered(Answer::Busy(Blocker { asked: true, ..blocker }))
}

fn asks(question: &Question) -> bool {
    matches!(&question.command.verb, Verb::Acquire(terms) if terms.ask.is_some())
}

/// The script by which a demand asks, after it found that another holder has the lock.
fn begin(demand: Demand) -> (Bench, Question) {
    let mut bench = Bench::new();
    bench.ask(1, demand);
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let question = bench.asked();
    (bench, question)
}

/// A caller that does not wait, after the holder was asked.
fn asking() -> Bench {
    let (mut bench, question) = begin(impatient());
    assert!(asks(&question));
    bench.tick(2);
    bench.answer(&question, asked_holder());
    assert!(bench.is_silent(), "the holder is given time: {:?}", bench.effects);
    bench
}

#[test]
fn a_holder_that_may_be_idle_is_given_50_ms_before_a_try_is_refused() {
    let mut bench = asking();
    bench.tick(49);
    assert!(bench.is_silent());
    bench.tick(1);
    let last = bench.asked();
    assert!(!asks(&last), "what it finds is the truth");
    bench.answer(&last, busy_with(Some(secs(20))));
    assert_eq!(bench.failed().len(), 1);
    assert!(bench.machine.is_idle());
    assert!(bench.parted().is_empty(), "the last look left the queue");
}

#[test]
fn a_slow_path_gives_the_holder_three_round_trips() {
    let (mut bench, question) = begin(impatient());
    bench.tick(30);
    bench.answer(&question, asked_holder());
    bench.tick(85);
    assert!(bench.is_silent());
    bench.tick(60);
    let _last = bench.asked();
}

#[test]
fn a_hint_ends_the_wait_for_the_holder() {
    let mut bench = asking();
    let token = bench.machine.awaited().map(ToString::to_string).unwrap();
    bench.hinted(&token);
    let last = bench.asked();
    assert!(!asks(&last));
    bench.answer(&last, got());
    assert_eq!(bench.grants().len(), 1);
}

#[test]
fn a_second_try_waits_for_the_holder_with_the_first() {
    let mut bench = asking();
    bench.tick(10);
    bench.ask(2, impatient());
    assert!(bench.is_silent(), "asking now would refuse both before the holder had its time");
    bench.tick(40);
    let last = bench.asked();
    bench.answer(&last, busy_with(Some(secs(20))));
    assert_eq!(bench.failed().len(), 2);
}

#[test]
fn a_call_dropped_while_the_holder_is_asked_leaves_no_place() {
    let mut bench = asking();
    assert!(bench.cancel(1));
    bench.released();
}

#[test]
fn a_holder_that_was_not_asked_is_waited_for_by_nobody() {
    let (mut bench, question) = begin(impatient());
    bench.answer(&question, busy_with(Some(secs(20))));
    assert_eq!(bench.failed().len(), 1, "its token says that somebody is inside");
}

#[test]
fn a_caller_that_waits_asks_nobody_since_its_place_does() {
    let (_bench, question) = begin(patient(60_000));
    assert!(!asks(&question));
}

/// The answers of a holder to the process that asks for the lock with this token.
pub(super) fn answers_of_holder(bench: &mut Bench, asker: &Token) -> usize {
    bench.step(|machine, env| machine.on_asked_for(asker, || true, env));
    let is_answer = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Message(_));
    bench.effects.out.extract_if(.., |outgoing| is_answer(outgoing)).count()
}

#[test]
fn an_idle_holder_hands_over_to_whoever_asks() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k").with(|terms| terms.linger = Some(secs(5))));
    bench.release(&hold);
    assert_eq!(answers_of_holder(&mut bench, &Token::fresh("0123456789ab", "")), 0);
    assert!(bench.released().says_waited_for(), "the asker stands in the queue");
    assert!(bench.machine.is_idle());
}

#[test]
fn a_holder_inside_says_so_but_not_to_a_flood_and_not_to_strangers() {
    let mut bench = Bench::new();
    let _hold = bench.hold(1, demand("k").with(|terms| terms.linger = Some(secs(5))));
    let asker = Token::fresh("0123456789ab", "");
    for stranger in ["x", "rl1.a.b.c.d", "rl1.a.*anything*.c.d"] {
        assert_eq!(answers_of_holder(&mut bench, &Token::from_wire(stranger)), 0, "{stranger}");
    }
    assert_eq!(answers_of_holder(&mut bench, &asker), 1);
    assert_eq!(answers_of_holder(&mut bench, &asker), 0);
    bench.tick(10);
    assert_eq!(answers_of_holder(&mut bench, &asker), 1);
}

#[test]
fn a_holder_on_a_very_slow_path_is_given_half_the_timeout_at_most() {
    let timeout = u64::try_from(impatient().terms.timeout.as_millis()).unwrap();
    let (mut bench, question) = begin(impatient());
    bench.tick(timeout * 3 / 10);
    bench.answer(&question, asked_holder());
    bench.tick(timeout / 2 - 1);
    assert!(bench.is_silent(), "{:?}", bench.effects);
    bench.tick(1);
    bench.asked();
}

/// A try that finds the lock busy while a release of this process has no answer.
fn behind_a_release() -> (Bench, Box<Reap>) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, impatient());
    drop(bench.release(&hold));
    let (pending, numbers) = (Arc::clone(&bench.pending), bench.numbers.load(Ordering::Relaxed));
    let mut reap = bench.released().take();
    reap.begin(&pending, || numbers);
    bench.ask(numbers + 1, impatient());
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    (bench, reap)
}

#[test]
fn a_try_is_answered_when_the_releases_before_it_are() {
    let (mut bench, reap) = behind_a_release();
    for _ in 0..5 {
        let question = bench.asked();
        bench.answer(&question, busy_with(None));
        bench.tick(9);
        assert!(bench.is_silent(), "it is asked again every 10 ms: {:?}", bench.effects);
        bench.tick(1);
    }
    let last = bench.asked();
    let now = bench.moment();
    assert!(matches!(reap.outcome(done(), now, now).1, Next::Done(_)));
    bench.answer(&last, busy_with(None));
    // It may have been executed before the release was.
    let question = bench.asked();
    bench.answer(&question, busy_with(None));
    assert!(matches!(bench.failed().as_slice(), [(_, LockError::Busy { .. })]));
}

#[test]
fn a_try_waits_no_longer_for_a_release_than_for_an_answer() {
    let (mut bench, reap) = behind_a_release();
    let question = bench.asked();
    bench.answer(&question, busy_with(None));
    bench.tick(u64::try_from(impatient().terms.timeout.as_millis()).unwrap());
    assert!(matches!(bench.failed().as_slice(), [(_, LockError::Backend { .. })]));
    drop(reap.give_up());
}

#[test]
fn releases_that_began_after_a_try_do_not_delay_it() {
    let mut bench = Bench::new();
    bench.ask(1, impatient());
    let question = bench.asked();
    bench.answer(&question, busy_unknown());
    let mut other = Bench::new();
    let hold = other.hold(1, impatient());
    drop(other.release(&hold));
    let mut reap = other.released().take();
    reap.begin(&bench.pending, || 2);
    let question = bench.asked();
    bench.answer(&question, busy_with(None));
    assert!(matches!(bench.failed().as_slice(), [(_, LockError::Busy { .. })]));
    drop(reap.give_up());
}

/// A release of this process that has no answer yet, with number 10.
fn pending_release(bench: &Bench) -> Box<Reap> {
    let mut other = Bench::new();
    let hold = other.hold(1, impatient());
    drop(other.release(&hold));
    let mut reap = other.released().take();
    reap.begin(&bench.pending, || 10);
    reap
}

#[test]
fn a_caller_whose_wait_was_over_before_that_of_an_earlier_one_is_not_answered_before_the_release() {
    let mut bench = Bench::new();
    let reap = pending_release(&bench);
    bench.ask(5, patient(50));
    let take = bench.asked();
    bench.ask(20, patient(15));
    bench.answer(&take, busy_unknown());
    let question = bench.asked();
    bench.tick(6);
    bench.tick(40);
    bench.answer(&question, busy_with(None));
    assert_eq!(bench.failed().len(), 0, "what makes it busy may be the token that is released");
    drop(reap.give_up());
}

#[test]
fn a_try_that_was_given_up_leaves_no_haste_to_those_who_wait() {
    let mut bench = Bench::new();
    let reap = pending_release(&bench);
    bench.ask(5, demand("k"));
    let take = bench.asked();
    bench.ask(20, impatient());
    bench.answer(&take, busy_unknown());
    let question = bench.asked();
    assert!(bench.cancel(20));
    bench.answer(&question, busy_with(None));
    bench.tick(10);
    assert!(bench.is_silent(), "{:?}", bench.effects);
    drop(reap.give_up());
}

#[test]
fn a_caller_that_came_before_the_release_hears_that_the_lock_is_busy() {
    let mut bench = Bench::new();
    let reap = pending_release(&bench);
    bench.ask(5, patient(30));
    let take = bench.asked();
    bench.ask(20, impatient());
    bench.ask(25, patient(30));
    bench.answer(&take, busy_unknown());
    let question = bench.asked();
    bench.answer(&question, busy_with(None));
    bench.tick(15);
    let failed = bench.failed();
    assert!(matches!(failed.as_slice(), [(5, LockError::Busy { .. })]), "{failed:?}");
    drop(reap.give_up());
}
