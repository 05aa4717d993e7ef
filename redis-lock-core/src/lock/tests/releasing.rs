//! Giving the lock back, or on to the next waiter.

use super::*;
use crate::LockState;
use crate::domain::kind::Kind;

/// Whether a hold in the terms of `held` goes to a waiter with those of `next` without a question.
fn passes(held: Demand, next: Demand) -> bool {
    let mut bench = Bench::new();
    let hold = bench.hold(1, held);
    bench.ask(2, next);
    bench.release(&hold);
    is_passed(&mut bench)
}

fn is_passed(bench: &mut Bench) -> bool {
    match bench.grants().as_slice() {
        [] => {
            assert_eq!(bench.parted().len(), 1, "{:?}", bench.effects);
            bench.asked();
            false
        }
        [(2, _)] => {
            assert!(bench.effects.out.is_empty(), "{:?}", bench.effects);
            true
        }
        other => panic!("{other:?}"),
    }
}

fn fenced() -> Demand {
    demand("k").with(|terms| terms.fenced = true)
}

#[test]
fn a_lock_is_passed_on_in_the_same_terms_only() {
    assert!(passes(demand("k"), demand("k")));
    assert!(!passes(demand("k"), demand("k").with(|terms| terms.ttl = Some(secs(20)))));
    assert!(!passes(demand("k"), demand("k").with(|terms| terms.ttl = Some(secs(40)))));
    let lasting = || {
        demand("k").with(|terms| {
            terms.ttl = None;
            terms.renew = false;
        })
    };
    assert!(!passes(lasting(), lasting()));
    let unrenewed = || demand("k").with(|terms| terms.renew = false);
    assert!(!passes(demand("k"), unrenewed()));
    assert!(!passes(unrenewed(), demand("k")));
    let limited = |hours: u64| demand("k").with(|terms| terms.max_hold = secs(hours * 3_600));
    assert!(passes(limited(2), limited(2)));
    assert!(passes(limited(1), limited(2)));
    assert!(!passes(limited(2), limited(1)));
    assert!(!passes(demand("k"), fenced()), "no numbers are reserved");
}

/// Passes the lock on from the holder to the next waiter, whose hold it returns.
fn passed_on(bench: &mut Bench, hold: &Arc<Hold>, next: u64) -> Arc<Hold> {
    bench.ask(next, demand("k"));
    bench.release(hold);
    let (id, hold) = bench.granted();
    assert_eq!(id, next);
    hold
}

#[test]
fn an_old_guard_never_sees_the_hold_of_another_turn() {
    let mut bench = Bench::new();
    let mut old = vec![bench.hold(1, demand("k"))];
    for next in 2..50 {
        let hold = passed_on(&mut bench, &old[old.len() - 1].clone(), next);
        assert!(old.iter().all(|old| old.is_released() && !Arc::ptr_eq(old, &hold)));
        assert_eq!((hold.is_released(), hold.last_state()), (false, LockState::Held));
        old.push(hold);
    }
    let tokens: std::collections::HashSet<_> = old.iter().map(|old| old.token.clone()).collect();
    assert_eq!(tokens.len(), old.len());
}

#[test]
fn a_hold_takes_the_memory_of_one_that_nobody_has_any_more_and_nothing_else_of_it() {
    let mut bench = Bench::new();
    let mut hold = bench.hold(1, demand("k"));
    let mut seen = Vec::new();
    // No longer than a turn lasts.
    for next in 2..11 {
        let begun = bench.moment();
        let before = (hold.token.clone(), Arc::as_ptr(&hold));
        hold.doubted(begun);
        assert!(hold.renewed(begun, begun.after(secs(1))));
        hold = passed_on(&mut bench, &hold, next);
        assert_ne!((hold.token.clone(), Arc::as_ptr(&hold)), before);
        assert_eq!((hold.since, hold.is_released()), (begun, false));
        assert_eq!(hold.last_state(), LockState::Held);
        seen.push(Arc::as_ptr(&hold).addr());
        bench.tick(1);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() < 5, "{} places in memory for two holds", seen.len());
}

#[test]
fn a_lease_that_needed_no_renewal_is_renewed_for_whoever_may_hold_the_lock_for_longer() {
    let mut bench = Bench::new();
    // Its lease lasts as long as it may be held.
    let hold = bench.hold(1, demand("k").with(|terms| terms.max_hold = millis(29_500)));
    bench.ask(2, demand("k"));
    bench.release(&hold);
    let (_, next) = bench.granted();
    bench.tick(15_000);
    let renewal = bench.asked();
    bench.settle(&renewal, done());
    assert!(next.deadline() > bench.moment().after(secs(25)), "{:?}", next.deadline());
}

#[test]
fn an_extended_lease_is_passed_on_to_nobody_who_asked_for_a_shorter_one() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let _confirmed = bench.extend(&hold, secs(60));
    let longer = bench.asked();
    bench.settle(&longer, done());
    bench.ask(2, demand("k"));
    bench.release(&hold);
    assert!(!is_passed(&mut bench));
}

#[test]
fn a_lease_that_is_half_over_is_not_passed_on() {
    // Half of 30 seconds is left 14.698 seconds after the question: this side ends it earlier.
    for (late, passed) in [(14_000, true), (14_687, true), (14_688, false), (15_000, false)] {
        let mut bench = Bench::new();
        bench.ask(1, demand("k"));
        let take = bench.asked();
        bench.now += late;
        bench.answer(&take, got());
        let (_, hold) = bench.granted();
        bench.questions(); // A renewal, where it is due.
        bench.ask(2, demand("k"));
        bench.release(&hold);
        assert_eq!(is_passed(&mut bench), passed, "after {late} ms");
    }
}

#[test]
fn whoever_left_is_passed_over() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.cancel(2);
    bench.release(&hold);
    assert!(bench.grants().is_empty());
    bench.released();
}

#[test]
fn the_turn_of_a_process_ends_with_a_release_and_then_a_question() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.ask(3, demand("k"));
    let mut confirmed = bench.release(&first);
    let (id, second) = bench.granted();
    assert_eq!(id, 2, "within the turn the lock is handed on at once");
    assert!(matches!(outcome_of(&mut confirmed), Some(Ok(()))));
    bench.now += 20;
    let mut confirmed = bench.release(&second);
    assert!(outcome_of(&mut confirmed).is_none(), "the server is to confirm it");
    let [Outgoing::Part(reap), Outgoing::Ask(question)] = bench.effects.out.as_slice() else {
        panic!("{:?}", bench.effects.out);
    };
    let fresh = question.command.verb.token();
    assert_eq!(reap.command(bench.moment()).verb.token(), Some(first.token.wire()));
    assert!(fresh.is_some() && fresh != Some(first.token.wire()));
    let question = bench.asked();
    bench.answer(&question, got());
    assert_eq!(bench.granted().0, 3);
}

#[test]
fn a_turn_lasts_10_ms_or_1_ms_from_when_somebody_waits_elsewhere() {
    for (waited_for, late, passed) in
        [(false, 9, true), (false, 10, false), (true, 0, true), (true, 1, false)]
    {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k"));
        if waited_for {
            bench.somebody_waits();
        }
        bench.ask(2, demand("k"));
        bench.now += late;
        bench.release(&hold);
        assert_eq!(is_passed(&mut bench), passed, "after {late} ms");
    }
}

#[test]
fn a_turn_is_bounded_in_count_where_the_clock_stands_still() {
    let mut bench = Bench::new();
    let mut hold = bench.hold(0, demand("k"));
    let mut passes = 0;
    loop {
        passes += 1;
        bench.ask(passes, demand("k"));
        bench.release(&hold);
        let Some((id, next)) = bench.grants().pop() else { break };
        assert_eq!(id, passes);
        hold = next;
        assert!(passes < 10_000);
    }
    assert!((1_000..10_000).contains(&passes), "{passes}");
    bench.asked();
}

#[test]
fn a_holder_that_knows_who_waits_elsewhere_ends_its_turn_and_gives_the_lock_away_at_once() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    bench.somebody_waits();
    bench.ask(2, demand("k"));
    bench.now += 2;
    bench.release(&first);
    assert!(bench.released().says_waited_for(), "two of 10 ms have passed");
    let question = bench.asked();
    assert!(matches!(question.command.verb, Verb::Acquire(_)), "behind who waits: {question:?}");
    bench.answer(&question, got());
    let second = bench.granted().1;
    bench.release(&second);
    assert!(!bench.released().says_waited_for(), "it came here, so nobody waited");
    let third = bench.hold(3, demand("k"));
    bench.somebody_waits();
    bench.release(&third);
    assert!(bench.released().says_waited_for());
}

#[test]
fn local_hand_overs_of_a_fenced_lock_use_up_their_numbers_and_then_ask() {
    let mut bench = Bench::new();
    bench.ask(0, fenced());
    let acquire = bench.asked();
    bench.answer(&acquire, Outcome::Answered(Answer::Held { fence: Some(1_031), slot: None }));
    let (_, mut hold) = bench.granted();
    assert_eq!(hold.fence, Some(1_000));
    for id in 1..u64::from(lease::FENCES) {
        bench.ask(id, fenced());
        bench.release(&hold);
        hold = bench.granted().1;
        assert_eq!(hold.fence, Some(1_000 + id));
    }
    bench.ask(99, fenced());
    bench.release(&hold);
    assert!(bench.grants().is_empty(), "no number is left");
    bench.released();
    bench.asked();
}

#[test]
fn a_hold_that_must_last_is_kept_on_the_server_until_then() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k").with(|terms| terms.min_hold = Some(secs(2))));
    bench.ask(2, demand("k"));
    bench.release(&hold);
    assert!(bench.grants().is_empty(), "nobody gets it before");
    let mut reap = bench.released();
    let keep = |reap: &Parted, now| match reap.verb(now) {
        Verb::Release { keep, .. } => keep.map(|keep| keep.time),
        other => panic!("{other:?}"),
    };
    let end = hold.since.after(secs(2));
    assert_eq!(keep(&reap, bench.moment()), Some(end.since(bench.moment())));
    for outcome in [unknown(), refused(), unknown()] {
        bench.now += 300;
        assert!(reap.outcome(outcome, bench.moment(), bench.moment()).is_none());
        let rest = end.since(bench.moment());
        assert_eq!(keep(&reap, bench.moment()), Some(rest), "a retry grants no more than is left");
    }
    assert_eq!(keep(&reap, end), None, "a keep that is over is a release");
}

#[test]
fn a_lease_that_is_kept_is_cut_again_while_a_renewal_may_be_executed_late() {
    let mut bench = Bench::new();
    let reader = Demand { kind: Kind::Read, ..demand("k") };
    let hold = bench.hold(1, reader.with(|terms| terms.min_hold = Some(secs(25))));
    bench.tick(10_000);
    let renewal = bench.asked();
    bench.answer(&renewal, unknown());
    let again = bench.asked();
    let renewed = Answer::Renewed { longer: None, waited_for: false, slot: None };
    bench.answer(&again, Outcome::Answered(renewed));
    let _confirmed = bench.release(&hold);
    let mut reap = bench.released();
    let (released, end) = (bench.moment(), hold.since.after(secs(25)));
    assert!(reap.outcome(done(), released, released).is_some());
    assert!(!reap.is_done(), "a renewal behind it would lengthen the lease");
    assert!(matches!(reap.verb(end), Verb::Release { keep: None, .. }), "no longer than it must");
    let late = end.after(secs(60));
    reap.outcome(gone(), late, late);
    assert!(reap.is_done());
}

#[test]
fn a_hold_that_has_lasted_long_enough_is_passed_on() {
    for (least, passed) in [(RTT + 1, false), (RTT, true)] {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k").with(|terms| terms.min_hold = Some(millis(least))));
        bench.ask(2, demand("k"));
        bench.release(&hold);
        assert_eq!(is_passed(&mut bench), passed, "at least {least} ms");
    }
}

#[test]
fn b12_a_release_of_a_hold_that_ended_changes_nothing() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let _confirmed = bench.release(&hold);
    bench.released();
    let next = bench.hold(2, demand("k"));
    assert!(matches!(outcome_of(&mut bench.release(&hold)), Some(Ok(()))));
    assert!(bench.is_silent() && !next.is_released());
    bench.tick(40_000);
    bench.parted();
    bench.questions();
    let outcome = outcome_of(&mut bench.release(&next));
    assert!(outcome.is_some_and(|outcome| outcome.is_err_and(|error| error.is_lost())));
}

/// A release that is confirmed, on its way.
fn on_its_way() -> (Bench, Parted, Confirmed) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let confirmed = bench.release(&hold);
    let reap = bench.released();
    (bench, reap, confirmed)
}

#[test]
fn a_lock_that_is_gone_at_the_first_try_was_lost() {
    let (bench, mut reap, _confirmed) = on_its_way();
    let (_, verdict) = reap.outcome(gone(), bench.moment(), bench.moment()).unwrap();
    assert!(verdict.is_err_and(|error| error.is_lost()));
    assert!(reap.is_done());
}

#[test]
fn a_lock_that_is_gone_after_an_unknown_try_was_released_by_that_try() {
    let taken = Answer::Gone { by: Some("theirs".into()), because: None };
    // By then somebody else may have it.
    for answer in [gone(), Outcome::Answered(taken)] {
        let (bench, mut reap, _confirmed) = on_its_way();
        assert!(reap.outcome(unknown(), bench.moment(), bench.moment()).is_none());
        assert!(!reap.is_done(), "it is tried again");
        let (_, verdict) = reap.outcome(answer, bench.moment(), bench.moment()).unwrap();
        assert!(verdict.is_ok(), "{verdict:?}");
        assert!(reap.is_done());
    }
}

#[test]
fn who_releases_gets_its_answer_when_the_lock_is_freed_and_the_rest_is_removed_later() {
    let (bench, mut reap, _confirmed) = on_its_way();
    let sent = bench.moment();
    let (_, verdict) = reap.outcome(freed(), sent, sent).unwrap();
    assert!(verdict.is_ok() && !reap.is_done(), "{verdict:?}");
    assert!(reap.outcome(refused(), sent, sent).is_none() && !reap.is_done());
    assert!(reap.outcome(gone(), sent, sent).is_none() && reap.is_done());

    let (_bench, mut reap, _confirmed) = on_its_way();
    assert!(reap.outcome(freed(), sent, sent).is_some());
    assert!(reap.outcome(freed(), sent, reap.gone_by()).is_none());
    assert!(reap.is_done(), "nothing of it is left then");
}

#[test]
fn a_try_that_was_refused_or_came_after_the_lease_released_nothing() {
    let (bench, mut reap, _confirmed) = on_its_way();
    assert!(reap.outcome(refused(), bench.moment(), bench.moment()).is_none());
    let (_, verdict) = reap.outcome(gone(), bench.moment(), bench.moment()).unwrap();
    assert!(verdict.is_err_and(|error| error.is_lost()));

    let end = lease::deadline(Bench::new().moment(), Some(secs(30)));
    for late in [end, end.after(secs(10))] {
        let (_bench, mut reap, _confirmed) = on_its_way();
        assert!(reap.outcome(unknown(), late, late).is_none());
        let (_, verdict) = reap.outcome(gone(), late, late).unwrap();
        assert!(verdict.is_err_and(|error| error.is_lost()));
    }
}
