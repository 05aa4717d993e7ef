//! A hold that goes from one process to another.

use super::*;
use crate::domain::demand::Adopted;
use crate::domain::kind::Kind;

fn adopting(token: &Token) -> Demand {
    Demand {
        adopts: Some(Box::new(Adopted { token: token.clone(), fence: Some(7) })),
        ..demand("k")
    }
}

#[test]
fn an_adopted_token_is_renewed_and_has_the_fence_that_it_came_with() {
    let token = Token::fresh("other", "");
    let mut bench = Bench::new();
    bench.ask(1, adopting(&token));
    let question = bench.asked();
    assert!(matches!(question.command.verb, Verb::Renew { .. }), "{question:?}");
    assert_eq!(question.command.verb.token(), Some(token.wire()));
    bench.answer(&question, done());
    let (_, hold) = bench.granted();
    assert_eq!((hold.token.wire(), hold.fence), (token.wire(), Some(7)));
    bench.release(&hold);
    let released = bench.released();
    assert_eq!(released.verb(bench.moment()).token(), Some(token.wire()));
}

#[test]
fn an_adoption_that_is_abandoned_releases_nothing() {
    let mut bench = Bench::new();
    bench.ask(1, adopting(&Token::fresh("other", "")));
    let question = bench.asked();
    bench.cancel(1);
    assert!(bench.parted().is_empty(), "whoever gave it away may take it again");
    assert!(bench.machine.is_idle());
    bench.answer(&question, done());
    assert!(bench.is_silent());
}

#[test]
fn a_token_that_has_nothing_any_more_cannot_be_adopted() {
    let mut bench = Bench::new();
    bench.ask(1, adopting(&Token::fresh("other", "")));
    let question = bench.asked();
    bench.answer(&question, gone());
    assert!(bench.failed().remove(0).1.is_lost());
    assert!(bench.parted().is_empty() && bench.machine.is_idle());
}

#[test]
fn detaching_gives_the_token_and_releases_nothing() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.tick(10_001);
    let renew = bench.asked();
    let token = bench.step(|machine, env| machine.detach(&hold, false, env));
    assert_eq!(token.as_ref().map(Token::wire), Some(hold.token.wire()));
    assert!(bench.parted().is_empty() && bench.machine.is_idle());
    bench.answer(&renew, done());
    assert!(bench.is_silent());
    assert_eq!(hold.last_state(), crate::LockState::Released);
    let again = bench.step(|machine, env| machine.detach(&hold, false, env));
    assert!(again.is_none(), "it is given away once");
}

#[test]
fn who_waits_for_a_hold_that_is_detached_asks_with_a_token_of_its_own() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.step(|machine, env| machine.detach(&hold, false, env));
    let question = bench.asked();
    assert!(matches!(question.command.verb, Verb::Acquire(_)), "it is not free: {question:?}");
    assert_ne!(question.command.verb.token(), Some(hold.token.wire()));
}

#[test]
fn who_adopts_a_token_is_not_passed_another_one() {
    let token = Token::fresh("other", "");
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.ask(2, adopting(&token));
    bench.release(&hold);
    assert!(bench.grants().is_empty());
    assert_eq!(bench.asked().command.verb.token(), Some(token.wire()));
}

#[test]
fn an_adopted_lease_is_not_cut_since_another_process_asked_for_it() {
    let mut bench = Bench::new();
    bench.ask(1, adopting(&Token::fresh("other", "")));
    let question = bench.asked();
    bench.answer(&question, done());
    let _hold = bench.granted();
    bench.tick(10_001);
    let renew = bench.asked();
    let longer = Answer::Renewed { longer: Some(secs(3_600)), waited_for: false, slot: None };
    bench.answer(&renew, Outcome::Answered(longer));
    assert!(bench.is_silent(), "{:?}", bench.effects);
}

#[test]
fn an_adopted_hold_that_was_lost_is_not_released() {
    let mut bench = Bench::new();
    bench.ask(1, adopting(&Token::fresh("other", "")));
    let question = bench.asked();
    bench.answer(&question, done());
    let (_, hold) = bench.granted();
    bench.tick(40_000);
    assert!(hold.loss(bench.moment()).is_some());
    assert!(bench.parted().is_empty(), "whoever gave it away may hold it");
}

#[test]
fn an_adopted_hold_that_is_taken_away_is_released() {
    for ttl in [Some(secs(30)), None] {
        let mut bench = Bench::new();
        let token = Token::fresh("other", "");
        bench.ask(
            1,
            adopting(&token).with(|terms| {
                terms.ttl = ttl;
                terms.renew = ttl.is_some();
            }),
        );
        let question = bench.asked();
        bench.answer(&question, done());
        let (_, hold) = bench.granted();
        bench.step(|machine, env| machine.close(&LockError::Shutdown, &LossReason::Shutdown, env));
        assert!(hold.loss(bench.moment()).is_some());
        assert_eq!(bench.released().verb(bench.moment()).token(), Some(token.wire()));
    }
}

/// The steps of a process that adopts a token, until it has the lock.
fn adopted(token: &Token, ttl: Duration) -> (Bench, Arc<Hold>) {
    let mut bench = Bench::new();
    // As text, since that is how it travels.
    let token: Token = token.to_string().parse().unwrap();
    bench.ask(1, adopting(&token).with(|terms| terms.ttl = Some(ttl)));
    let question = bench.asked();
    bench.answer(&question, done());
    let (_, hold) = bench.granted();
    (bench, hold)
}

fn detached(bench: &mut Bench, hold: &Arc<Hold>) -> Token {
    bench.step(|machine, env| machine.detach(hold, false, env)).unwrap()
}

/// A token that was given away while its acquisition may still be executed.
fn doubtful_token() -> Token {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.answer(&take, unknown());
    let acquire = bench.asked();
    bench.answer(&acquire, got());
    let (_, hold) = bench.granted();
    detached(&mut bench, &hold).to_string().parse().unwrap()
}

#[test]
fn an_acquisition_that_may_still_be_executed_gets_a_tombstone_by_whoever_adopts_its_token() {
    let token = doubtful_token();
    for _ in 0..2 {
        let (mut bench, hold) = adopted(&token, secs(10));
        let _confirmed = bench.release(&hold);
        let now = bench.moment();
        let mut release = bench.released();
        assert!(release.tombstone(now) > Some(secs(30)), "{:?}", release.tombstone(now));
        release.outcome(done(), now, now);
        assert!(!release.is_done(), "it is repeated");
    }
    // The doubt is passed on with the token each time, and ends after a while.
    let (mut bench, hold) = adopted(&token, secs(60));
    bench.now += 20_000;
    let token = detached(&mut bench, &hold);
    let (mut bench, hold) = adopted(&token, secs(10));
    let _confirmed = bench.release(&hold);
    let left = bench.released().tombstone(bench.moment()).unwrap();
    assert!(left > secs(10) && left < secs(16), "{left:?}");
}

#[test]
fn what_is_settled_is_adopted_and_released_once() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let token = detached(&mut bench, &hold);
    assert_eq!(token.to_string(), *token.wire().to_string());
    let (mut bench, hold) = adopted(&token, secs(10));
    let _confirmed = bench.release(&hold);
    let now = bench.moment();
    let mut release = bench.released();
    assert_eq!(release.tombstone(now), None);
    release.outcome(done(), now, now);
    assert!(release.is_done());
}

#[test]
fn a_cut_that_may_still_be_executed_bounds_what_an_adopter_trusts() {
    for settles in [None, Some(unknown())] {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k"));
        bench.tick(10_001);
        let renew = bench.asked();
        let longer = Answer::Renewed { longer: Some(secs(3_600)), waited_for: false, slot: None };
        bench.answer(&renew, Outcome::Answered(longer));
        let cut = bench.asked();
        assert!(matches!(cut.command.verb, Verb::Keep { .. }), "{cut:?}");
        if let Some(outcome) = settles {
            bench.answer(&cut, outcome);
            bench.asked();
        }
        let token = detached(&mut bench, &hold);
        let (mut bench, hold) = adopted(&token, secs(600));
        let sent = Moment::at_millis(bench.now - RTT);
        assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))));
        assert!(bench.machine.due() < hold.deadline(), "it is renewed before that");
        let token = detached(&mut bench, &hold);
        let (_bench, hold) = adopted(&token, secs(600));
        assert_eq!(hold.deadline(), lease::deadline(sent, Some(secs(30))), "also the next one");
    }
}

#[test]
fn an_adopted_hold_that_was_ended_leaves_a_tombstone_while_an_acquisition_may_still_be_executed() {
    let token = doubtful_token();
    let (mut bench, hold) = adopted(&token, secs(10));
    bench.step(|machine, env| machine.on_forced(env));
    let check = bench.asked();
    bench.answer(&check, gone());
    assert!(hold.loss(bench.moment()).is_some());
    let now = bench.moment();
    assert!(bench.released().tombstone(now) > Some(secs(30)), "it would stand there again");
}

#[test]
fn a_token_that_is_adopted_too_late_gets_a_tombstone_while_an_acquisition_may_still_be_executed() {
    let token = doubtful_token();
    let mut bench = Bench::new();
    bench.ask(1, adopting(&token).with(|terms| terms.ttl = Some(secs(10))));
    let renewal = bench.asked();
    bench.answer(&renewal, gone());
    let now = bench.moment();
    assert!(bench.released().tombstone(now) > Some(secs(30)), "it would stand there again");
}

#[test]
fn a_token_that_is_adopted_for_keys_of_which_it_has_one_is_left_to_whoever_has_it() {
    let token = doubtful_token();
    let mut bench = Bench::new();
    let kind = Kind::All { ordered: false };
    bench.ask(1, Demand { kind, ..adopting(&token) }.with(|terms| terms.ttl = Some(secs(10))));
    let renewal = bench.asked();
    bench.answer(&renewal, gone());
    assert!(bench.parted().is_empty(), "another adopter may have it");
}
