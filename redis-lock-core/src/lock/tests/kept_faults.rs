//! What can go wrong while a lease stays here and no body runs.

use super::asking::answers_of_holder;
use super::kept::{kept, lingering};
use super::*;
use crate::Token;
use crate::domain::lease::FENCES;

fn renewed(waited_for: bool) -> Outcome {
    Outcome::Answered(Answer::Renewed { longer: None, waited_for, slot: None })
}

/// A kept lease whose renewal is under way.
fn renewing() -> (Bench, Arc<Hold>, Question) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k").with(|terms| terms.linger = Some(secs(60))));
    bench.release(&hold);
    bench.tick(10_001);
    let renewal = bench.asked();
    (bench, hold, renewal)
}

/// A caller of this process wants the lock, and is given nothing of an earlier lease.
fn is_asked_for_anew(bench: &mut Bench, before: &Arc<Hold>) -> Question {
    bench.ask(2, lingering());
    assert!(bench.grants().is_empty(), "it was handed out");
    let question = bench.asked();
    let token = question.command.verb.token();
    assert!(token.is_some() && token != Some(before.token.wire()), "{question:?}");
    question
}

#[test]
fn lg2_lg24_a_process_that_slept_past_its_idle_lease_does_not_hand_it_out() {
    for asleep in [29_800, 31_000, 86_400_000] {
        let (mut bench, hold) = kept();
        // The caller comes before the engine's thread has had its turn.
        bench.now += asleep;
        is_asked_for_anew(&mut bench, &hold);
        bench.released();
    }
}

#[test]
fn lg6_a_lease_that_is_asked_for_and_at_its_end_is_released_once() {
    let asker = Token::fresh("0123456789ab", "");
    let (mut bench, _) = kept();
    bench.now += 5_000;
    assert_eq!(answers_of_holder(&mut bench, &asker), 0);
    bench.released();
    bench.tick(0);
    bench.somebody_waits();
    assert!(bench.is_silent() && bench.machine.is_idle());
    let (mut bench, _) = kept();
    bench.tick(5_000);
    bench.released();
    assert_eq!(answers_of_holder(&mut bench, &asker), 0, "its look could overtake the release");
    assert!(bench.is_silent() && bench.machine.is_idle());
}

#[test]
fn lg6_a_release_that_was_cut_is_sent_again_and_asked_for_by_nobody() {
    let (mut bench, hold) = kept();
    bench.somebody_waits();
    let mut reap = bench.released();
    let now = bench.moment();
    assert!(reap.outcome(unknown(), now, now).is_none() && !reap.is_done());
    is_asked_for_anew(&mut bench, &hold);
    assert!(reap.outcome(gone(), now, now).is_none() && reap.is_done());
}

#[test]
fn lg7_a_renewal_under_way_delays_no_hand_over_and_its_late_answer_changes_nothing() {
    for answer in [renewed(false), renewed(true), gone(), unknown()] {
        let (mut bench, hold, renewal) = renewing();
        bench.somebody_waits();
        assert!(bench.released().says_waited_for());
        let question = is_asked_for_anew(&mut bench, &hold);
        bench.settle(&renewal, answer);
        assert!(bench.is_silent(), "{:?}", bench.effects);
        assert!(bench.machine.wants(question.number));
        bench.cancel(2);
        bench.released();
    }
}

#[test]
fn lg7_a_lease_whose_renewal_is_under_way_is_taken_again_and_lengthened_by_its_answer() {
    let (mut bench, hold, renewal) = renewing();
    bench.ask(2, demand("k").with(|terms| terms.linger = Some(secs(60))));
    let (_, again) = bench.granted();
    let end = again.deadline();
    assert_eq!(again.token.wire(), hold.token.wire());
    bench.answer(&renewal, renewed(false));
    assert!(again.deadline() > end);
    bench.release(&again);
    assert!(bench.is_silent(), "it is kept");
}

#[test]
fn lg8_the_answer_to_a_renewal_that_tells_of_a_waiter_ends_an_idle_lease() {
    let (mut bench, _, renewal) = renewing();
    bench.answer(&renewal, renewed(true));
    assert!(bench.released().says_waited_for(), "it is handed over, not only deleted");
    assert_eq!(bench.effects.asked_away, Some(false));
    assert!(bench.machine.is_idle());
}

#[test]
fn lg12_no_lease_stays_without_messages_nor_one_that_began_without() {
    let (mut bench, hold) = kept();
    bench.hints = false;
    bench.step(Machine::on_listening);
    bench.released();
    let question = is_asked_for_anew(&mut bench, &hold);
    bench.answer(&question, got());
    let (_, deaf) = bench.granted();
    // Its token says to other processes that its lease is never idle.
    bench.hints = true;
    bench.step(Machine::on_listening);
    bench.release(&deaf);
    bench.released();
}

#[test]
fn lg18_forged_messages_cost_an_idle_lease_and_nothing_else() {
    let asker = Token::fresh("0123456789ab", "");
    for forged in ["w", "a", "r"] {
        let (mut bench, hold) = kept();
        for _ in 0..1_000 {
            match forged {
                "w" => bench.somebody_waits(),
                "a" => assert_eq!(answers_of_holder(&mut bench, &asker), 0),
                _ => bench.step(Machine::on_forced),
            }
        }
        bench.released();
        assert!(bench.machine.is_idle(), "{forged}");
        is_asked_for_anew(&mut bench, &hold);
    }
    let (mut bench, hold) = kept();
    for token in ["", "u", "rl1.x", &*hold.token.wire().to_string()] {
        bench.hinted(token);
    }
    assert!(bench.is_silent() && !bench.machine.is_idle(), "it grants and ends nothing");
}

#[test]
fn lg18_askers_beyond_the_limit_of_the_process_get_no_answer() {
    let asker = Token::fresh("0123456789ab", "");
    let mut bench = Bench::new();
    let _hold = bench.hold(1, lingering());
    bench.step(|machine, env| machine.on_asked_for(&asker, || false, env));
    assert!(bench.is_silent(), "{:?}", bench.effects);
    bench.tick(10);
    assert_eq!(answers_of_holder(&mut bench, &asker), 1);
    let (mut bench, _) = kept();
    bench.step(|machine, env| machine.on_asked_for(&asker, || false, env));
    bench.released();
}

#[test]
fn lg22_idle_takings_use_up_a_block_of_numbers_and_the_next_block_is_above_it() {
    let fenced = || {
        demand("k").with(|terms| {
            terms.fenced = true;
            terms.linger = Some(secs(5));
        })
    };
    let held = |fence| Outcome::Answered(Answer::Held { fence: Some(fence), slot: None });
    let mut bench = Bench::new();
    bench.ask(0, fenced());
    let question = bench.asked();
    bench.answer(&question, held(1_000));
    let (_, mut hold) = bench.granted();
    let mut numbers = vec![hold.fence];
    for taking in 1..u64::from(FENCES) {
        bench.release(&hold);
        bench.ask(taking, fenced());
        (_, hold) = bench.granted();
        numbers.push(hold.fence);
    }
    assert_eq!(numbers, (969..=1_000).map(Some).collect::<Vec<_>>());
    bench.release(&hold);
    bench.ask(40, fenced());
    assert!(bench.grants().is_empty(), "no number is left");
    bench.released();
    let question = bench.asked();
    bench.answer(&question, unknown());
    bench.tick(50);
    let again = bench.asked();
    bench.answer(&again, held(2_000));
    assert_eq!(bench.granted().1.fence, Some(1_969));
}
