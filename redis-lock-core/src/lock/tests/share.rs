//! Who gets the value of a body that shares it, and who is refused for other input.

use super::*;
use crate::SecondCall;
use crate::domain::label::Label;
use crate::domain::planted::{PlantedFault, plant};
use crate::domain::value::{Finish, StoredValue};

fn sharing() -> Demand {
    demand("k").with(|terms| terms.share = true)
}

fn same(input: u128) -> Demand {
    demand("k").with(|terms| {
        (terms.once, terms.same) = (Some(secs(60)), Some(input));
        terms.label = Label::of(&"".into(), None).telling(SecondCall::Waits, Some(input));
    })
}

/// The answer of the server to a token that is to have a value.
fn value_of(token: &Token) -> Outcome {
    Outcome::Answered(Answer::Shared(StoredValue::new("7").of_token(token.wire())))
}

fn value_of_other() -> Outcome {
    value_of(&Token::fresh("other", "night%s"))
}

impl Bench {
    fn share(&mut self, hold: &Arc<Hold>) -> Parted {
        let finish = Finish::Share(StoredValue::new("7"));
        self.step(|machine, env| machine.release(hold, &finish, || None, env));
        self.released()
    }

    fn share_ended(&mut self, hold: &Arc<Hold>, is_good: bool) {
        self.step(|machine, env| machine.on_share_end(hold, is_good, env));
    }

    /// Those who got a value since the last look.
    fn shared(&mut self) -> Vec<u64> {
        let is_shared = |later: &mut Later<u64>| matches!(later, Later::Share(..));
        let shared = self.effects.later.extract_if(.., is_shared);
        let id =
            |later| if let Later::Share(id, value) = later { Some((id, *value)) } else { None };
        let ids = shared.filter_map(id).map(|(id, value)| {
            assert_eq!(value.as_str(), "7");
            id
        });
        ids.collect()
    }
}

#[test]
fn those_who_wait_for_a_value_contend_after_twice_the_time_limit() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, sharing());
    bench.ask(2, sharing());
    let _release = bench.share(&hold);
    bench.tick(3_999);
    assert!(bench.is_silent());
    bench.tick(1);
    let question = bench.asked();
    bench.answer(&question, got());
    assert_eq!(bench.granted().0, 2);
}

#[test]
fn calls_that_came_before_the_end_get_the_value_when_the_caller_does() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, sharing());
    bench.ask(2, sharing());
    bench.ask(3, sharing());
    let release = bench.share(&hold);
    let Verb::Release { share: Some((value, ttl)), .. } = release.verb(bench.moment()) else {
        panic!()
    };
    assert!(value.as_str().starts_with("rl1.") && value.as_str().ends_with(" 7"), "{value:?}");
    assert_eq!(Some(ttl), hold.demand.terms.ttl);
    bench.now += 1;
    bench.ask(4, sharing());
    bench.ask(5, sharing().with(|terms| terms.wait = Wait::None));
    assert!(matches!(bench.failed().as_slice(), [(5, LockError::Busy { .. })]));
    assert!(bench.is_silent() && bench.shared().is_empty(), "the release has no answer yet");
    bench.share_ended(&hold, true);
    assert_eq!(bench.shared(), [2, 3]);
    // The fourth came when the end was known, so it runs.
    let question = bench.asked();
    bench.answer(&question, got());
    assert_eq!(bench.granted().0, 4);
}

#[test]
fn if_the_caller_gets_no_value_the_next_call_runs() {
    for by_time in [false, true] {
        let mut bench = Bench::new();
        let hold = bench.hold(1, sharing());
        bench.ask(2, sharing());
        let _release = bench.share(&hold);
        match by_time {
            false => bench.share_ended(&hold, false),
            true => bench.tick(10_000),
        }
        assert_eq!(bench.shared(), [0_u64; 0]);
        let question = bench.asked();
        bench.answer(&question, got());
        assert_eq!(bench.granted().0, 2);
        bench.share_ended(&hold, true);
        assert_eq!(bench.shared(), [0_u64; 0], "it is too late");
    }
}

#[test]
fn a_call_whose_question_overtakes_the_release_of_its_own_process_gets_no_value() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, sharing());
    let _release = bench.share(&hold);
    bench.ask(2, sharing());
    let question = bench.asked();
    bench.answer(&question, busy_with(Some(secs(30))));
    bench.tick(1_500);
    let question = bench.asked();
    bench.answer(&question, value_of(&hold.token));
    assert_eq!(bench.shared(), [0_u64; 0]);
    let question = bench.asked();
    bench.answer(&question, got());
    assert_eq!(bench.granted().0, 2);
}

/// A process that waits hears by a message that the other one has ended; one more call comes before the answer.
fn heard(tells: bool) -> (Bench, Vec<u64>) {
    let mut bench = Bench::new();
    bench.contend(1, sharing(), busy_with(Some(secs(30))));
    bench.ask(2, sharing());
    bench.now += 5;
    let token = bench.machine.token().expect("it waits").to_string();
    let question = if tells {
        bench.hinted(&token);
        bench.asked()
    } else {
        bench.tick(1_500);
        bench.asked()
    };
    bench.now += 1;
    bench.ask(3, sharing());
    bench.answer(&question, value_of_other());
    let shared = bench.shared();
    (bench, shared)
}

#[test]
fn a_process_that_waits_gives_the_value_to_all_who_came_before_it_heard_of_the_end() {
    let (mut bench, shared) = heard(true);
    assert_eq!(shared, [1, 2]);
    assert!(bench.parted().is_empty(), "the server has nothing of the token");
    let question = bench.asked();
    bench.answer(&question, got());
    assert_eq!(bench.granted().0, 3);
    // The answer itself is the first that is heard.
    let (bench, shared) = heard(false);
    assert_eq!(shared, [1, 2, 3]);
    assert!(bench.is_silent());
    plant(Some(PlantedFault::SharedWithLate));
    let (_, shared) = heard(true);
    plant(None);
    assert_eq!(shared, [1, 2, 3], "the check must see that");
}

#[test]
fn other_input_is_refused_by_the_holder_of_the_own_process_and_by_that_of_another() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, same(1));
    assert_eq!(hold.token.same(), Some(1));
    bench.ask(2, same(2));
    assert!(matches!(bench.failed().as_slice(), [(2, LockError::Mismatch { .. })]));
    bench.ask(3, same(1));
    assert!(bench.failed().is_empty());
    let mut bench = Bench::new();
    bench.ask(1, same(1));
    let question = bench.asked();
    bench.ask(2, same(2));
    bench.ask(3, same(1));
    bench.now += 1;
    bench.ask(4, same(1));
    let value = Some(Token::fresh("other", &format!("%={:032x}", 2)).wire().to_string());
    let blocker = Blocker { value, ttl: Some(secs(30)), queued: true, ..Blocker::unknown() };
    bench.answer(&question, Outcome::Answered(Answer::Busy(blocker.clone())));
    let failed: Vec<_> = bench.failed().into_iter().map(|(id, _)| id).collect();
    assert_eq!(failed, [1, 3], "the fourth came after the question");
    // It is asked for, and the token has the fingerprint of the first that waits.
    let question = bench.asked();
    bench.answer(&question, Outcome::Answered(Answer::Busy(blocker)));
    let failed: Vec<_> = bench.failed().into_iter().map(|(id, _)| id).collect();
    assert_eq!(failed, [4]);
    drop(bench.parted());
}

#[test]
fn a_lease_is_not_handed_to_a_call_with_other_input() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let question = bench.asked();
    bench.ask(2, same(1));
    bench.ask(3, same(2));
    bench.ask(4, same(1));
    bench.answer(&question, got());
    let (_, hold) = bench.granted();
    drop(bench.release(&hold));
    drop(bench.released());
    let question = bench.asked();
    bench.answer(&question, got());
    assert_eq!(bench.granted().0, 2);
    assert!(matches!(bench.failed().as_slice(), [(3, LockError::Mismatch { .. })]));
}
