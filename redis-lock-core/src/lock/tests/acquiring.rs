//! From the first question to the hold.

use super::*;
use crate::domain::kind::Kind;
use crate::domain::names::Names;

#[test]
fn an_uncontended_pair_is_two_commands() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    assert!(matches!(take.command.verb, Verb::Take { .. }), "{take:?}");
    bench.answer(&take, got());
    let (_, hold) = bench.granted();
    bench.release(&hold);
    let reap = bench.released();
    assert_eq!(reap.tombstone(bench.moment()), None, "one release is enough");
    assert!(bench.machine.is_idle() && bench.is_silent());
}

#[test]
fn a3_a_lost_answer_is_asked_for_again_with_the_same_token() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, unknown());
    let again = bench.asked();
    assert!(matches!(again.command.verb, Verb::Acquire(_)), "{again:?}");
    assert_eq!(again.command.verb.token(), take.command.verb.token());
    bench.answer(&again, got());
    let (_, hold) = bench.granted();
    bench.release(&hold);
    let tombstone = bench.released().tombstone(bench.moment());
    assert!(
        tombstone.is_some_and(|rest| rest > secs(30)),
        "the first may still arrive: {tombstone:?}"
    );
}

#[test]
fn a9_an_answer_that_took_longer_than_the_lease_hands_out_nothing() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.now += 40_000;
    bench.answer(&take, got());
    assert!(bench.grants().is_empty());
    assert_eq!(bench.parted().len(), 1, "what was granted goes back");
    assert_ne!(bench.asked().command.verb.token(), take.command.verb.token(), "a fresh token");
}

#[test]
fn a12_every_hold_has_a_token_of_its_own() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.release(&first);
    let (_, second) = bench.granted();
    assert_ne!(first.token, second.token);
    bench.release(&second);
    bench.released();
    assert_ne!(bench.hold(3, demand("k")).token.wire(), first.token.wire());
}

#[test]
fn a2_an_abandoned_question_is_taken_back_also_when_its_answer_comes_later() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    assert!(bench.cancel(1));
    let mut reap = bench.released();
    assert_eq!(reap.dropped_question(), Some(take.number));
    assert!(bench.machine.is_idle());
    bench.answer(&take, got());
    assert!(bench.is_silent() && bench.machine.is_idle());
    assert_eq!(reap.tombstone(bench.moment()), None, "in order behind it one release is enough");
    reap.doubt(bench.moment());
    assert!(reap.tombstone(bench.moment()).is_some(), "its connection broke: it may still arrive");
}

#[test]
fn the_outcome_of_a_dropped_question_changes_nothing() {
    for outcome in [got(), busy_with(None), gone(), unknown(), refused()] {
        let mut bench = Bench::new();
        bench.ask(1, demand("k"));
        let dropped = bench.asked();
        bench.cancel(1);
        bench.released();
        bench.ask(2, demand("k"));
        let question = bench.asked();
        bench.answer(&dropped, outcome.clone());
        assert_eq!(bench.machine.strays, 1);
        assert!(bench.is_silent(), "{outcome:?}: {:?}", bench.effects);
        bench.answer(&question, got());
        assert_eq!(bench.granted().0, 2);
    }
}

#[test]
fn the_same_outcome_twice_counts_once() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let acquire = bench.asked();
    bench.answer(&take, got());
    assert!(bench.grants().is_empty(), "it was answered before");
    bench.answer(&acquire, got());
    bench.granted();
}

#[test]
fn the_lease_is_counted_from_the_sending_of_the_question_that_got_it() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.now += 5_000;
    bench.answer(&take, busy_unknown());
    let sent = bench.moment();
    let acquire = bench.asked();
    bench.now += 7_000;
    bench.answer(&acquire, got());
    let (_, hold) = bench.granted();
    assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))));
    assert_eq!(hold.since, sent);
}

#[test]
fn the_lease_is_as_long_as_was_asked_for_whoever_gets_it() {
    let short = || demand("k").with(|terms| terms.ttl = Some(secs(5)));
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    bench.ask(2, short());
    let long = bench.asked();
    bench.cancel(1);
    bench.answer(&long, got());
    assert!(bench.grants().is_empty(), "it was asked for in the terms of somebody who left");
    assert_eq!(bench.parted().len(), 1);
    let sent = bench.moment();
    let own = bench.asked();
    bench.answer(&own, got());
    let (id, hold) = bench.granted();
    assert_eq!((id, hold.deadline()), (2, lease::deadline(sent, Some(secs(5)))));
}

#[test]
fn no_second_question_is_asked_while_one_is_open() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    let token = Arc::clone(take.command.verb.token().unwrap());
    bench.ask(2, demand("k"));
    bench.ask(3, impatient());
    bench.hinted(&token);
    bench.step(Machine::on_connected);
    bench.step(Machine::on_listening);
    bench.step(Machine::on_forced);
    bench.somebody_waits();
    bench.cancel(2);
    bench.tick(1_000);
    assert!(bench.effects.out.is_empty(), "{:?}", bench.effects.out);
    bench.answer(&take, busy_unknown());
    bench.asked();
}

#[test]
fn numbers_that_were_not_reserved_are_asked_for_before_anything_is_handed_out() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let first = bench.asked();
    bench.ask(2, demand("k").with(|terms| terms.fenced = true));
    bench.cancel(1);
    bench.answer(&first, got());
    assert!(bench.grants().is_empty());
    let again = bench.asked();
    assert_eq!(again.command.verb.token(), first.command.verb.token());
    bench.answer(&again, Outcome::Answered(Answer::Held { fence: Some(100), slot: None }));
    assert_eq!(bench.granted().1.fence, Some(69));
}

#[test]
fn a_server_that_has_no_fencing_number_to_give_is_not_asked_again() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.fenced = true));
    let question = bench.asked();
    bench.answer(&question, got());
    let failed = bench.failed();
    let [(1, error @ LockError::Backend { .. })] = failed.as_slice() else { panic!("{failed:?}") };
    assert!(error.to_string().contains("without the number"), "{error}");
    assert_eq!(bench.released().verb(bench.moment()).token(), question.command.verb.token());
}

#[test]
fn only_the_open_question_is_wanted() {
    let mut bench = Bench::new();
    assert!(!bench.machine.wants(0));
    bench.ask(1, demand("k"));
    let take = bench.asked();
    assert!(bench.machine.wants(take.number));
    assert!(!bench.machine.wants(take.number + 1));
    bench.answer(&take, busy_unknown());
    let acquire = bench.asked();
    assert!(bench.machine.wants(acquire.number) && !bench.machine.wants(take.number));
    bench.cancel(1);
    assert!(!bench.machine.wants(acquire.number), "its token is being released");
}

#[test]
fn a_lock_of_several_keys_is_found_by_each_of_them_but_the_first() {
    let name = |key: &str| Names::new("lock", key);
    let names = Names::together(name("a"), vec![name("b"), name("c")], "a, b, c");
    let several = Demand { names, kind: Kind::All { ordered: false }, ..demand("a") };
    let found = |bench: &Bench| {
        ["a", "b", "c", "d"].map(|key| bench.machine.any_other_key(&|main| main == key))
    };
    let mut bench = Bench::new();
    assert_eq!(found(&bench), [false; 4], "nobody wants it");
    bench.ask(1, several);
    assert_eq!(found(&bench), [false, true, true, false]);
    let acquire = bench.asked();
    bench.answer(&acquire, got());
    let (_, hold) = bench.granted();
    assert_eq!(found(&bench), [false, true, true, false]);
    bench.release(&hold);
    assert_eq!(found(&bench), [false; 4]);
}

#[test]
fn a_call_without_a_fence_gets_no_number_reserved_for_another() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.fenced = true));
    bench.ask(2, demand("k"));
    let question = bench.asked();
    bench.cancel(1);
    bench.answer(&question, Outcome::Answered(Answer::Held { fence: Some(100), slot: None }));
    let (id, hold) = bench.granted();
    assert_eq!((id, hold.fence), (2, None));
}
