//! A lease that stays here for a while although no body runs.

use super::*;

pub(super) fn lingering() -> Demand {
    demand("k").with(|terms| terms.linger = Some(secs(5)))
}

/// A lease that is kept after its release.
pub(super) fn kept() -> (Bench, Arc<Hold>) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, lingering());
    let mut confirmed = bench.release(&hold);
    assert!(matches!(outcome_of(&mut confirmed), Some(Ok(()))), "it costs no command");
    assert!(bench.is_silent(), "{:?}", bench.effects);
    assert!(!bench.machine.is_idle() && bench.machine.hold().is_none());
    (bench, hold)
}

/// Whether the lease of a hold stays when it is released.
fn lingers(demand: Demand, before_release: impl FnOnce(&mut Bench, &Arc<Hold>)) -> bool {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand);
    before_release(&mut bench, &hold);
    bench.release(&hold);
    let parted = bench.parted();
    assert!(parted.len() <= 1);
    parted.is_empty()
}

#[test]
fn a_kept_lease_is_taken_again_without_a_question() {
    let (mut bench, first) = kept();
    bench.tick(3_000);
    bench.ask(2, lingering());
    let (id, second) = bench.granted();
    assert_eq!((id, second.token.wire()), (2, first.token.wire()));
    assert_ne!(second.token, first.token, "each hold has a name of its own");
    assert!(bench.effects.out.is_empty());
    bench.release(&second);
    assert!(bench.is_silent());
    bench.tick(4_999);
    assert!(bench.is_silent(), "it is kept since its last release");
    bench.tick(1);
    bench.released();
    assert!(bench.machine.is_idle());
}

#[test]
fn a_kept_lease_that_was_ended_by_force_is_given_back() {
    let (mut bench, hold) = kept();
    assert_eq!(bench.machine.leased(), Some(hold.token.wire()), "messages name it");
    bench.step(Machine::on_forced);
    bench.released();
    assert!(bench.machine.is_idle(), "the next call asks the server");
}

#[test]
fn a_check_that_is_answered_while_the_lease_is_kept_does_not_lengthen_it() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, lingering());
    let end = hold.deadline();
    let _confirmed = bench.check(&hold);
    let check = bench.asked();
    bench.tick(100);
    bench.release(&hold);
    assert!(bench.is_silent(), "it is kept");
    bench.answer(&check, done());
    bench.ask(2, lingering());
    let (_, second) = bench.granted();
    assert_eq!(second.deadline(), end);
    assert!(bench.machine.due() < end, "it is renewed before that");
    bench.release(&second);
    bench.tick(5_000);
    bench.released();
}

#[test]
fn a_lease_is_kept_only_where_nobody_can_want_it() {
    let nothing = |_: &mut Bench, _: &Arc<Hold>| {};
    assert!(lingers(lingering(), nothing));
    assert!(!lingers(demand("k"), nothing));
    assert!(!lingers(demand("k").with(|terms| terms.linger = Some(Duration::ZERO)), nothing));
    assert!(!lingers(lingering().with(|terms| terms.renew = false), nothing));
    assert!(!lingers(lingering(), |bench, _| bench.somebody_waits()));
    assert!(!lingers(lingering(), |bench, _| bench.hints = false), "nobody could ask for it");
    assert!(!lingers(lingering(), |bench, hold| {
        let _confirmed = bench.extend(hold, secs(60));
        let longer = bench.asked();
        bench.answer(&longer, done());
    }));
    assert!(!lingers(lingering(), |bench, _| {
        bench.tick(10_001);
        let renew = bench.asked();
        bench.answer(&renew, refused());
    }));
}

#[test]
fn a_lease_that_somebody_else_had_before_is_not_kept() {
    let mut bench = Bench::new();
    bench.contend(1, lingering(), busy_with(Some(millis(100))));
    bench.tick(150);
    let again = bench.asked();
    bench.answer(&again, got());
    let (_, hold) = bench.granted();
    bench.release(&hold);
    bench.released();
}

#[test]
fn a_kept_lease_is_given_up_when_somebody_waits_elsewhere() {
    let (mut bench, hold) = kept();
    bench.somebody_waits();
    let reap = bench.released();
    assert!(reap.says_waited_for());
    assert_eq!(reap.verb(bench.moment()).token(), Some(hold.token.wire()));
    assert!(bench.machine.is_idle());
}

#[test]
fn a_kept_lease_is_given_up_without_messages_and_on_a_new_connection() {
    let (mut bench, _) = kept();
    bench.step(Machine::on_listening);
    assert!(bench.is_silent(), "messages arrive");
    bench.hints = false;
    bench.step(Machine::on_listening);
    bench.released();
    let (mut bench, _) = kept();
    bench.step(Machine::on_connected);
    bench.released();
}

#[test]
fn a_kept_lease_in_other_terms_is_given_back_before_the_lock_is_asked_for() {
    for other in [
        lingering().with(|terms| terms.ttl = Some(secs(20))),
        lingering().with(|terms| terms.renew = false),
        lingering().with(|terms| terms.max_hold = secs(60)),
        lingering().with(|terms| terms.fenced = true),
    ] {
        let (mut bench, first) = kept();
        bench.ask(2, other);
        assert!(bench.grants().is_empty());
        let [Outgoing::Part(_), Outgoing::Ask(question)] = bench.effects.out.as_slice() else {
            panic!("{:?}", bench.effects.out);
        };
        assert_ne!(question.command.verb.token(), Some(first.token.wire()));
    }
}

#[test]
fn a_kept_lease_is_renewed_once_a_third_and_lost_without_anybodys_notice() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k").with(|terms| terms.linger = Some(secs(60))));
    bench.release(&hold);
    bench.tick(10_001);
    let renew = bench.asked();
    assert!(matches!(renew.command.verb, Verb::Renew { .. }), "{renew:?}");
    bench.tick(1_000);
    assert!(bench.is_silent(), "one question at a time");
    bench.answer(&renew, done());
    bench.tick(10_001);
    let renew = bench.asked();
    bench.answer(&renew, gone());
    assert!(bench.is_silent() && bench.machine.is_idle());
}

#[test]
fn a_kept_lease_is_given_up_when_its_renewal_fails() {
    for outcome in [refused(), unknown()] {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k").with(|terms| terms.linger = Some(secs(60))));
        bench.release(&hold);
        bench.tick(10_001);
        let renew = bench.asked();
        bench.answer(&renew, outcome);
        bench.released();
        assert!(bench.machine.is_idle());
    }
}

#[test]
fn a_lease_that_is_asked_away_shows_whether_it_was_taken_again() {
    for times in [0, 1, 9] {
        let (mut bench, _) = kept();
        for turn in 0..times {
            bench.ask(2 + turn, lingering());
            let (_, hold) = bench.granted();
            bench.release(&hold);
        }
        assert_eq!(bench.effects.asked_away, None);
        bench.somebody_waits();
        assert_eq!(bench.effects.asked_away.take(), Some(times > 0));
        bench.released();
    }
}

#[test]
fn a_lease_that_is_asked_away_while_it_is_in_use_is_no_idle_one() {
    let (mut bench, _) = kept();
    bench.ask(2, lingering());
    let (_, hold) = bench.granted();
    bench.somebody_waits();
    bench.release(&hold);
    bench.released();
    assert_eq!(bench.effects.asked_away.take(), Some(true));
}

#[test]
fn a_lease_that_was_waited_for_does_not_linger() {
    let mut bench = Bench::new();
    bench.contend(1, lingering(), busy_with(Some(millis(100))));
    bench.tick(150);
    let again = bench.asked();
    bench.answer(&again, got());
    let (_, hold) = bench.granted();
    bench.release(&hold);
    bench.released();
}

#[test]
fn a_key_that_does_not_linger_now_is_neither_kept_nor_flagged() {
    assert!(!lingers(lingering(), |bench, _| bench.lingers = false));
    let mut bench = Bench::new();
    bench.lingers = false;
    let hold = bench.hold(1, lingering());
    assert!(!hold.token.may_be_idle());
    bench.lingers = true;
    bench.release(&hold);
    bench.released();
}

#[test]
fn only_what_has_not_been_used_since_makes_room() {
    let (mut bench, _) = kept();
    let since = bench.machine.idle_since().unwrap();
    bench.step(|machine, env| machine.make_room(Moment::START, env));
    assert!(bench.is_silent());
    bench.step(|machine, env| machine.make_room(since, env));
    bench.released();
}

#[test]
fn a_lease_that_lasts_as_long_as_it_lingers_is_not_renewed() {
    let end = lease::deadline(Bench::new().moment(), Some(secs(30)));
    let lingers = end.since(Bench::new().moment().after(millis(RTT)));
    for (linger, renews) in [(lingers, false), (lingers + millis(1), true)] {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k").with(|terms| terms.linger = Some(linger)));
        bench.release(&hold);
        assert_eq!(bench.machine.due() < end, renews, "{linger:?}");
    }
}
