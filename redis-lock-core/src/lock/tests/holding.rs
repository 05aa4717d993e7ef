//! Renewing a hold, asking about it, losing it.

use super::*;
use crate::domain::kind::Kind;
use crate::domain::label::Label;
use crate::{LockState, LossReason};

/// A hold whose first renewal is open.
fn renewing() -> (Bench, Arc<Hold>, Question) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.tick(10_001);
    let renew = bench.asked();
    assert!(matches!(renew.command.verb, Verb::Renew { .. }), "{renew:?}");
    (bench, hold, renew)
}

#[test]
fn c3_c4_a_missed_renewal_is_tried_again_until_the_lease_ends() {
    let (mut bench, hold, renew) = renewing();
    bench.answer(&renew, unknown());
    assert_eq!(hold.state(bench.moment()), LockState::Uncertain);
    let renew = bench.asked();
    bench.answer(&renew, refused());
    assert!(bench.questions().is_empty(), "what was refused is asked again after a pause");
    bench.tick(300);
    let sent = bench.moment();
    let renew = bench.asked();
    bench.answer(&renew, done());
    assert_eq!(hold.state(bench.moment()), LockState::Held);
    assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))));
    bench.tick(10_001);
    let mut tries = 0;
    while bench.moment() < hold.deadline() {
        for renew in bench.questions() {
            tries += 1;
            bench.settle(&renew, refused());
        }
        bench.tick(10);
    }
    assert!(tries > 50, "{tries}");
    assert_eq!(hold.loss(bench.moment()), Some(LossReason::Expired));
    assert_eq!(bench.parted().len(), 1, "the server may count a longer lease");
    assert!(bench.machine.is_idle());
}

#[test]
fn c3_c4_renewals_whose_outcomes_are_unknown_at_once_are_tried_in_pauses() {
    let (mut bench, hold, renew) = renewing();
    bench.answer(&renew, unknown());
    let (mut tries, end) = (0, bench.now + 2_000);
    while bench.now < end {
        for renew in bench.questions() {
            tries += 1;
            bench.settle(&renew, unknown());
        }
        bench.tick(1);
    }
    assert!((5..=12).contains(&tries), "{tries}");
    drop(bench.release(&hold));
    assert_eq!(bench.parted().len(), 1);
}

#[test]
fn c1_nothing_is_renewed_after_the_release() {
    let (mut bench, hold, renew) = renewing();
    bench.release(&hold);
    assert_eq!(bench.released().dropped_question(), Some(renew.number));
    bench.answer(&renew, done());
    bench.tick(60_000);
    assert!(bench.is_silent() && bench.machine.is_idle());
}

#[test]
fn c6_c7_a_lock_that_is_free_or_has_another_holder_is_lost() {
    let other = Token::fresh("m", "");
    for (by, reason) in [
        (Some(other.wire().to_string()), LossReason::Overwritten { by: other.clone() }),
        (None, LossReason::Removed { because: None }),
    ] {
        let (mut bench, hold, renew) = renewing();
        bench.answer(&renew, Outcome::Answered(Answer::Gone { by, because: None }));
        assert_eq!(hold.loss(bench.moment()), Some(reason));
        assert!(bench.parted().is_empty(), "what is not ours is left alone");
        assert!(bench.machine.is_idle());
    }
}

#[test]
fn a_lock_that_is_gone_is_released_if_a_question_for_it_may_still_arrive() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, unknown());
    let again = bench.asked();
    bench.answer(&again, got());
    let (_, hold) = bench.granted();
    bench.tick(10_001);
    let renew = bench.asked();
    bench.answer(&renew, gone());
    assert!(hold.loss(bench.moment()).is_some());
    assert!(bench.released().tombstone(bench.moment()).is_some());
}

#[test]
fn a_loss_lets_the_next_waiter_ask_with_a_fresh_token() {
    let (mut bench, hold, renew) = renewing();
    bench.ask(2, demand("k"));
    bench.answer(&renew, gone());
    let next = bench.asked();
    assert_ne!(next.command.verb.token(), Some(hold.token.wire()));
    bench.answer(&next, got());
    assert_eq!(bench.granted().0, 2);
}

#[test]
fn a_renewal_counts_from_its_own_sending_and_for_its_own_ttl() {
    let (mut bench, hold, renew) = renewing();
    let sent = bench.moment();
    let mut confirmed = bench.extend(&hold, secs(60));
    bench.now += 1_000;
    bench.answer(&renew, done());
    assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))), "it asked for 30 seconds");
    assert!(outcome_of(&mut confirmed).is_none(), "its own question is still to come");
    let sent = bench.moment();
    let longer = bench.asked();
    let Verb::Renew { ttl, .. } = longer.command.verb else { panic!("{longer:?}") };
    assert_eq!(ttl, Some(secs(60)));
    bench.answer(&longer, done());
    assert!(matches!(outcome_of(&mut confirmed), Some(Ok(()))));
    assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(60))));
}

#[test]
fn the_outcome_of_a_renewal_is_nothing_to_the_next_hold() {
    let (mut bench, hold, renew) = renewing();
    bench.release(&hold);
    bench.released();
    let next = bench.hold(2, demand("k"));
    let deadline = next.deadline();
    bench.answer(&renew, gone());
    assert_eq!(next.state(bench.moment()), LockState::Held);
    bench.answer(&renew, done());
    assert_eq!(next.deadline(), deadline);
    assert_eq!(bench.machine.strays, 2);
}

#[test]
fn no_second_question_is_asked_about_a_hold_while_one_is_open() {
    let (mut bench, hold, renew) = renewing();
    let _check = bench.check(&hold);
    let _extension = bench.extend(&hold, secs(60));
    let _downgrade = bench.downgrade(&hold);
    bench.step(Machine::on_connected);
    bench.step(Machine::on_listening);
    bench.step(Machine::on_forced);
    bench.somebody_waits();
    bench.ask(2, demand("k"));
    bench.ask(3, impatient());
    bench.cancel(2);
    bench.tick(1_000);
    assert!(bench.effects.out.is_empty(), "{:?}", bench.effects.out);
    bench.answer(&renew, done());
    bench.asked();
}

#[test]
fn what_is_wanted_during_a_renewal_is_asked_after_it() {
    let (mut bench, hold, renew) = renewing();
    let mut checked = bench.check(&hold);
    let mut extended = bench.extend(&hold, secs(40));
    let mut downgraded = bench.downgrade(&hold);
    bench.answer(&renew, done());
    for confirmed in [&mut checked, &mut extended, &mut downgraded] {
        assert!(outcome_of(confirmed).is_none(), "the renewal was asked for before");
    }
    let longer = bench.asked();
    assert!(matches!(longer.command.verb, Verb::Renew { .. }), "{longer:?}");
    bench.answer(&longer, done());
    assert!(matches!(outcome_of(&mut checked), Some(Ok(()))), "a renewal tells as much as a check");
    assert!(matches!(outcome_of(&mut extended), Some(Ok(()))));
    assert!(outcome_of(&mut downgraded).is_none());
    let downgrade = bench.asked();
    assert!(matches!(downgrade.command.verb, Verb::Downgrade { .. }), "{downgrade:?}");
    bench.answer(&downgrade, done());
    assert!(matches!(outcome_of(&mut downgraded), Some(Ok(()))));
    assert_eq!(hold.last_kind(), Kind::Read);
}

#[test]
fn a_call_during_a_renewal_fails_at_its_deadline() {
    let (mut bench, hold, _renew) = renewing();
    assert_eq!(hold.demand.terms.timeout, secs(2));
    let mut requests = vec![bench.check(&hold)];
    bench.tick(100);
    requests.push(bench.extend(&hold, secs(40)));
    bench.tick(100);
    requests.push(bench.downgrade(&hold));
    bench.tick(1_799);
    for mut confirmed in requests {
        assert!(outcome_of(&mut confirmed).is_none());
        assert_eq!(bench.machine.due(), bench.moment().after(millis(1)));
        bench.tick(1);
        assert!(matches!(outcome_of(&mut confirmed), Some(Err(LockError::Backend { .. }))));
        bench.tick(99);
    }
    assert_eq!(hold.state(bench.moment()), LockState::Uncertain, "late, and the lease runs on");
}

#[test]
fn a_check_of_unknown_outcome_is_asked_again_and_a_refused_one_is_not() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let mut confirmed = bench.check(&hold);
    let check = bench.asked();
    bench.answer(&check, unknown());
    assert!(outcome_of(&mut confirmed).is_none());
    let check = bench.asked();
    bench.answer(&check, refused());
    assert!(matches!(outcome_of(&mut confirmed), Some(Err(LockError::Backend { .. }))));
    assert!(bench.is_silent());
}

#[test]
fn whoever_asks_learns_of_a_loss() {
    let (mut bench, hold, renew) = renewing();
    let mut confirmed = bench.check(&hold);
    bench.answer(&renew, gone());
    assert!(
        outcome_of(&mut confirmed)
            .is_some_and(|outcome| outcome.is_err_and(|error| error.is_lost()))
    );
    assert!(bench.questions().is_empty());
}

#[test]
fn a_new_connection_renews_at_once() {
    let mut bench = Bench::new();
    let _hold = bench.hold(1, demand("k"));
    bench.tick(1_000);
    assert!(bench.is_silent());
    bench.step(Machine::on_connected);
    assert!(matches!(bench.asked().command.verb, Verb::Renew { .. }));
}

#[test]
fn a_connection_that_is_made_while_a_renewal_is_open_has_it_renewed_once_more() {
    let (mut bench, _hold, renew) = renewing();
    bench.tick(1);
    bench.step(Machine::on_connected);
    assert!(bench.is_silent(), "one renewal at a time");
    bench.tick(1);
    bench.answer(&renew, done());
    let again = bench.asked();
    assert!(matches!(again.command.verb, Verb::Renew { .. }), "{again:?}");
    bench.answer(&again, done());
    assert!(bench.is_silent(), "and no more");
}

#[test]
fn a_lease_that_a_clock_made_longer_is_cut_to_what_was_asked_for() {
    let (mut bench, hold, renew) = renewing();
    let longer = Answer::Renewed { longer: Some(secs(3_600)), waited_for: false, slot: None };
    bench.answer(&renew, Outcome::Answered(longer));
    let cut = bench.asked();
    let Verb::Keep { time, .. } = cut.command.verb else { panic!("{cut:?}") };
    assert_eq!(time, secs(30));
    let sent = bench.moment();
    bench.answer(&cut, done());
    assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))), "it ends as it was cut");
    assert!(bench.is_silent(), "it is cut once");
}

#[test]
fn a_cut_that_may_still_be_executed_bounds_what_later_answers_are_trusted_for() {
    let (mut bench, hold, renew) = renewing();
    let longer = Answer::Renewed { longer: Some(secs(3_600)), waited_for: false, slot: None };
    bench.answer(&renew, Outcome::Answered(longer));
    let cut = bench.asked();
    assert!(matches!(cut.command.verb, Verb::Keep { .. }), "{cut:?}");
    bench.answer(&cut, unknown());
    let again = bench.asked();
    bench.answer(&again, done());
    let mut confirmed = bench.extend(&hold, secs(600));
    let extension = bench.asked();
    let sent = bench.moment();
    bench.answer(&extension, done());
    assert_eq!(outcome_of(&mut confirmed).map(|outcome| outcome.is_ok()), Some(true));
    assert_eq!(
        hold.deadline(),
        lease::deadline(sent, Some(secs(30))),
        "the cut may come behind it"
    );
    assert!(bench.machine.due() < hold.deadline(), "it is renewed before that");
}

#[test]
fn processes_do_not_renew_at_the_same_points_in_time() {
    let due = |manager: &str| {
        let mut bench = Bench::new();
        bench.manager = manager.into();
        let _hold = bench.hold(1, demand("k"));
        bench.machine.due()
    };
    let managers = ["0123456789ab", "0123456789ac", "0123456789bb", "ab0123456789"];
    let points: std::collections::BTreeSet<_> = managers.into_iter().map(due).collect();
    assert_eq!(points.len(), managers.len(), "{points:?}");
}

/// Whether a lease is cut when a renewal finds that so much is left of it.
fn is_cut(left: Option<Duration>, extension: Option<Duration>) -> bool {
    let (mut bench, hold, mut renew) = renewing();
    if let Some(ttl) = extension {
        bench.answer(&renew, done());
        let _confirmed = bench.extend(&hold, ttl);
        renew = bench.asked();
    }
    let answer = Answer::Renewed { longer: left, waited_for: false, slot: None };
    bench.answer(&renew, Outcome::Answered(answer));
    !bench.questions().is_empty()
}

#[test]
fn only_a_lease_that_is_longer_than_anything_that_was_asked_for_is_cut() {
    assert!(!is_cut(None, None));
    assert!(!is_cut(Some(secs(30)), None));
    assert!(!is_cut(Some(secs(31)), None), "clocks differ");
    assert!(is_cut(Some(millis(31_001)), None));
    assert!(!is_cut(Some(secs(61)), Some(secs(60))));
    assert!(is_cut(Some(millis(61_001)), Some(secs(60))));
}

#[test]
fn a_lease_that_lasts_as_long_as_its_hold_may_is_not_renewed() {
    for lasting in [
        demand("k").with(|terms| terms.renew = false),
        demand("k").with(|terms| terms.max_hold = secs(20)),
    ] {
        let mut bench = Bench::new();
        let _hold = bench.hold(1, lasting);
        bench.tick(15_000);
        bench.step(Machine::on_connected);
        assert!(bench.is_silent(), "{:?}", bench.effects);
    }
}

#[test]
fn a_renewal_is_late_after_the_timeout_and_that_is_reported_once() {
    let missed = |bench: &mut Bench| {
        let is_it =
            |later: &mut Later<u64>| matches!(observed(later), Some(Observation::Missed { .. }));
        bench.effects.later.extract_if(.., is_it).count()
    };
    let (mut bench, hold, _renew) = renewing();
    bench.tick(1_999);
    assert_eq!((hold.state(bench.moment()), missed(&mut bench)), (LockState::Held, 0));
    assert_eq!(bench.machine.due(), bench.moment().after(millis(1)));
    bench.tick(1);
    assert_eq!((hold.state(bench.moment()), missed(&mut bench)), (LockState::Uncertain, 1));
    bench.tick(1_000);
    assert_eq!(missed(&mut bench), 0);
}

#[test]
fn whoever_asks_hears_of_an_unknown_outcome_when_there_is_no_time_to_ask_again() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let mut confirmed = bench.check(&hold);
    let check = bench.asked();
    bench.now += 2_000;
    bench.settle(&check, unknown());
    assert!(matches!(outcome_of(&mut confirmed), Some(Err(LockError::Backend { .. }))));
    assert!(bench.is_silent(), "{:?}", bench.effects);
}

#[test]
fn what_this_process_knows_of_its_lock_is_shown() {
    let wall = std::time::SystemTime::UNIX_EPOCH + secs(1_000_000);
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    assert!(bench.machine.hold().is_some_and(|held| Arc::ptr_eq(held, &hold)));
    bench.ask(2, demand("k"));
    let label = Label::of(&"".into(), Some("worker"));
    bench.ask(3, demand("k").with(|terms| terms.label = label));
    bench.now += 5;
    let view = LocalView::of(&bench.machine, bench.moment(), wall);
    assert_eq!(view.held, Some((hold.token.clone(), None)));
    let waiters: Vec<_> =
        view.waiters.iter().map(|one| (one.label.as_deref(), one.since)).collect();
    let since = Some(wall - millis(5));
    assert_eq!(waiters, [(None, since), (Some("worker"), since)]);
}

#[test]
fn a_downgrade_that_could_not_be_asked_again_is_asked_after_the_next_renewal() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, Demand { kind: Kind::Write, ..demand("k") });
    let _downgraded = bench.downgrade(&hold);
    let downgrade = bench.asked();
    bench.answer(&downgrade, done());
    bench.step(Machine::on_connected);
    let is_downgrade = |it: &Question| matches!(it.command.verb, Verb::Downgrade { .. });
    for outcome in [refused(), unknown(), done()] {
        let renew = bench.asked();
        assert!(matches!(renew.command.verb, Verb::Renew { .. }), "{renew:?}");
        bench.answer(&renew, done());
        let downgrade = bench.asked();
        assert!(is_downgrade(&downgrade), "{downgrade:?}");
        bench.answer(&downgrade, outcome);
        assert!(bench.is_silent(), "not at once: {:?}", bench.effects);
        bench.tick(12_000);
    }
    let renew = bench.asked();
    bench.answer(&renew, done());
    assert!(bench.is_silent(), "the server knows it now: {:?}", bench.effects);
}

#[test]
fn only_the_renewals_of_a_short_lease_have_a_short_time_limit() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k").with(|terms| terms.ttl = Some(millis(400))));
    let question = bench.asked();
    assert_eq!(question.command.timeout, secs(2));
    bench.answer(&question, got());
    let (_, hold) = bench.granted();
    bench.tick(150);
    let renewal = bench.asked();
    assert_eq!(renewal.command.timeout, millis(100));
    bench.tick(99);
    assert_eq!(hold.last_state(), LockState::Held);
    bench.tick(1);
    assert_eq!(hold.last_state(), LockState::Uncertain);
    bench.settle(&renewal, done());
    let _confirmed = bench.check(&hold);
    assert_eq!(bench.asked().command.timeout, secs(2));
    bench.release(&hold);
    assert_eq!(bench.released().timeout(), secs(2));
}
