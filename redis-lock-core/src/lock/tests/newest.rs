//! A call that ends older ones, and is ended by newer ones.

use super::*;
use crate::LockState;
use crate::store::Newest;

fn newest() -> Demand {
    demand("k").with(|terms| terms.newest = true)
}

fn superseded(held: bool) -> Outcome {
    Outcome::Answered(Answer::Superseded { held })
}

/// Which question of its call it is.
fn which(question: &Question) -> Option<Newest> {
    match &question.command.verb {
        Verb::Acquire(terms) => terms.newest,
        other => panic!("{other:?}"),
    }
}

/// It asks as a call without `newest` does.
fn assert_is_plain(question: &Question) {
    assert_eq!(which(question), None);
    assert!(!Token::from_wire(question.command.verb.token().unwrap()).is_newest());
}

/// A call whose grant came after its lease.
fn granted_too_late() -> Bench {
    let mut bench = Bench::new();
    bench.ask(1, newest().with(|terms| terms.ttl = Some(secs(2))));
    let question = bench.asked();
    bench.now += 3_000;
    bench.answer(&question, got());
    drop(bench.parted());
    bench
}

fn asks_for_newer(question: &Question) -> bool {
    matches!(question.command.verb, Verb::Newer { .. })
}

/// How many holds were asked to leave since the last look.
fn asked_to_leave(bench: &mut Bench) -> usize {
    let is_it = |later: &mut Later<u64>| matches!(later, Later::Superseded(_));
    bench.effects.later.extract_if(.., is_it).count()
}

#[test]
fn its_token_says_what_it_is_and_its_first_question_too() {
    let mut bench = Bench::new();
    bench.ask(1, newest());
    let question = bench.asked();
    assert!(Token::from_wire(question.command.verb.token().unwrap()).is_newest());
    assert_eq!(which(&question), Some(Newest::First));
    // The server may have executed it or not, which it finds out itself.
    bench.answer(&question, unknown());
    let question = bench.asked();
    assert_eq!(which(&question), Some(Newest::First));
    bench.answer(&question, busy_with(Some(secs(9))));
    bench.tick(1_000);
    let question = bench.asked();
    assert_eq!(which(&question), Some(Newest::Later));
    bench.answer(&question, got());
    bench.granted();
}

#[test]
fn a_call_that_the_server_may_have_forgotten_goes_on_with_a_token_that_ends_no_other_call() {
    for (ttl, known) in [(30_000, 5_000), (2_000, 2_000)] {
        let mut bench = Bench::new();
        bench.ask(
            1,
            newest().with(|terms| (terms.ttl, terms.timeout) = (Some(millis(ttl)), millis(150))),
        );
        let question = bench.asked();
        bench.settle(&question, unknown());
        let question = bench.asked();
        // The next question may wait 500 ms for a connection, and be on its way for as long.
        bench.tick(known - 1_051);
        bench.settle(&question, refused());
        bench.tick(50);
        let question = bench.asked();
        assert_eq!(which(&question), Some(Newest::First));
        bench.settle(&question, refused());
        bench.tick(100);
        let question = bench.asked();
        drop(bench.parted());
        assert_is_plain(&question);
        bench.settle(&question, got());
        let hold = bench.granted().1;
        assert!(!hold.may_be_superseded() && bench.machine.awaited().is_none());
    }
}

#[test]
fn a_call_whose_grant_came_after_its_lease_asks_with_a_fresh_token_that_ends_no_other_call() {
    let mut bench = granted_too_late();
    let question = bench.asked();
    assert_is_plain(&question);
    bench.answer(&question, got());
    bench.granted();
}

#[test]
fn a_later_call_that_is_let_in_is_not_one_too_many_once_it_has_taken_the_place_of_an_older_one() {
    let mut bench = Bench::new();
    bench.ask(1, newest().with(|terms| terms.max_waiters = Some(1)));
    let question = bench.asked();
    // The answer to the older one, which came in between.
    bench.waiting = 1;
    bench.answer(&question, busy_with(Some(secs(30))));
    assert!(bench.failed().is_empty());
}

#[test]
fn a_time_limit_without_end_leaves_the_first_question_its_flag() {
    let mut bench = Bench::new();
    bench.ask(1, newest().with(|terms| terms.timeout = Duration::MAX));
    assert_eq!(which(&bench.asked()), Some(Newest::First));
}

fn later_call(bench: &mut Bench) {
    bench.step(|machine, env| {
        machine.note_later_call(env.now);
        machine.on_later_call(env);
    });
}

fn is_ended(bench: &mut Bench) -> bool {
    matches!(bench.failed().as_slice(), [(1, LockError::Superseded { .. })])
}

#[test]
fn a_call_that_has_to_ask_anew_ends_when_a_later_one_of_its_locks_has_come() {
    for comes_in_the_pause in [true, false] {
        let mut bench = Bench::new();
        bench.ask(1, newest());
        let question = bench.asked();
        if !comes_in_the_pause {
            later_call(&mut bench);
            assert!(bench.failed().is_empty(), "the server may have executed its question before");
        }
        bench.settle(&question, refused());
        if comes_in_the_pause {
            later_call(&mut bench);
        }
        assert!(is_ended(&mut bench), "{comes_in_the_pause}");
        drop(bench.parted());
        assert!(bench.is_silent());
    }
}

#[test]
fn a_call_without_its_flag_ends_when_a_later_one_of_its_locks_comes() {
    let mut bench = granted_too_late();
    let question = bench.asked();
    bench.answer(&question, busy_with(Some(secs(30))));
    later_call(&mut bench);
    assert!(is_ended(&mut bench));
    bench.released();
}

#[test]
fn what_the_server_has_answered_is_its_to_decide() {
    let mut bench = Bench::new();
    bench.ask(1, newest());
    let question = bench.asked();
    bench.answer(&question, busy_with(Some(secs(30))));
    later_call(&mut bench);
    bench.tick(1_500);
    let question = bench.asked();
    assert_eq!(which(&question), Some(Newest::Later));
    bench.answer(&question, superseded(false));
    assert!(is_ended(&mut bench));
}

#[test]
fn a_superseded_waiter_ends_with_one_question_and_leaves_nothing() {
    let mut bench = Bench::new();
    bench.ask(1, newest());
    let question = bench.asked();
    bench.answer(&question, busy_with(Some(secs(9))));
    let token = bench.machine.awaited().unwrap().to_string();
    bench.hinted(&token);
    let question = bench.asked();
    bench.answer(&question, superseded(false));
    let (_, error) = bench.failed().remove(0);
    assert!(matches!(&error, LockError::Superseded { key } if key == "k"), "{error:?}");
    assert!(!error.is_busy() && !error.is_retryable() && !error.is_lost());
    assert!(bench.is_silent() && bench.machine.is_idle());
}

#[test]
fn a_superseded_call_that_was_granted_the_lock_releases_it() {
    let mut bench = Bench::new();
    bench.ask(1, newest());
    let question = bench.asked();
    bench.answer(&question, superseded(true));
    assert!(matches!(bench.failed().remove(0).1, LockError::Superseded { .. }));
    bench.released();
}

#[test]
fn a_holder_believes_a_message_only_when_the_server_confirms_it() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, newest());
    let token = bench.machine.awaited().unwrap().to_string();
    bench.hinted("another token");
    assert!(bench.is_silent());
    bench.hinted(&token);
    let question = bench.asked();
    assert!(asks_for_newer(&question));
    bench.answer(&question, done());
    assert!(!hold.is_superseded() && asked_to_leave(&mut bench) == 0);
    bench.tick(20);
    bench.hinted(&token);
    let question = bench.asked();
    bench.answer(&question, superseded(true));
    assert!(hold.is_superseded() && hold.last_state() == LockState::Held);
    assert_eq!(asked_to_leave(&mut bench), 1);
    // What is known needs no more questions.
    assert_eq!(bench.machine.awaited(), None);
    bench.tick(20);
    bench.hinted(&token);
    assert!(bench.is_silent());
    bench.release(&hold);
    assert!(bench.released().says_waited_for());
}

#[test]
fn a_message_that_comes_before_the_answer_is_not_forgotten() {
    let mut bench = Bench::new();
    bench.ask(1, newest());
    let question = bench.asked();
    let token = question.command.verb.token().unwrap().to_string();
    bench.hinted(&token);
    bench.answer(&question, got());
    let (_, hold) = bench.granted();
    let question = bench.asked();
    assert!(asks_for_newer(&question));
    bench.answer(&question, superseded(true));
    assert!(hold.is_superseded());
}

#[test]
fn a_renewal_that_finds_a_waiter_makes_up_for_a_lost_message() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, newest());
    bench.tick(10_500);
    let question = bench.asked();
    assert!(matches!(question.command.verb, Verb::Renew { .. }));
    let waited_for = Answer::Renewed { longer: None, waited_for: true, slot: None };
    bench.answer(&question, Outcome::Answered(waited_for));
    let question = bench.asked();
    assert!(asks_for_newer(&question));
    // An answer that is missing is asked for again after the next renewal.
    bench.answer(&question, unknown());
    assert!(!hold.is_superseded());
    bench.tick(10_500);
    let question = bench.asked();
    let waited_for = Answer::Renewed { longer: None, waited_for: true, slot: None };
    bench.answer(&question, Outcome::Answered(waited_for));
    let question = bench.asked();
    bench.answer(&question, superseded(true));
    assert!(hold.is_superseded());
}

#[test]
fn a_holder_without_newest_is_never_asked() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let token = bench.machine.token().unwrap().to_string();
    bench.hinted(&token);
    assert!(bench.is_silent() && bench.machine.awaited().is_none());
    bench.tick(10_500);
    let question = bench.asked();
    let waited_for = Answer::Renewed { longer: None, waited_for: true, slot: None };
    bench.answer(&question, Outcome::Answered(waited_for));
    assert!(bench.questions().is_empty() && !hold.is_superseded());
}
