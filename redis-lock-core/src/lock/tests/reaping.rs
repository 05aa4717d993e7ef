//! Releasing a token until the server has nothing of it.

use super::*;
use crate::domain::kind::Kind;
use crate::domain::names::Names;

/// A release on its way that its caller waits for, and the time.
fn awaited() -> (Box<Reap>, Confirmed, Moment) {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    let confirmed = bench.release(&hold);
    (bench.released().take(), confirmed, bench.moment())
}

/// The same when no caller waits for it any more.
fn unawaited() -> (Box<Reap>, Moment) {
    let (mut reap, _, now) = awaited();
    reap.overdue();
    (reap, now)
}

/// The release that has to be tried again, and when.
fn again(next: Next) -> (Moment, Box<Reap>) {
    match next {
        Next::Again(at, reap) => (at, reap),
        Next::Done(_) => panic!("it is to be done again"),
    }
}

fn just_before(moment: Moment) -> Moment {
    Moment::from_nanos(moment.as_nanos() - 1)
}

#[test]
fn a_release_is_tried_again_at_once_and_then_after_ever_longer_pauses() {
    let (mut reap, _confirmed, now) = awaited();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let (at, next) = again(reap.outcome(refused(), now, now).1);
        pauses.push(at.since(now).as_millis());
        reap = next;
    }
    assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1_000, 1_000, 1_000]);
    reap.give_up();
}

#[test]
fn a_release_in_doubt_is_repeated_until_no_acquisition_can_come() {
    let (mut reap, now) = unawaited();
    reap.put_in_doubt(now, Some(secs(30)));
    reap.put_in_doubt(now, Some(secs(10)));
    let end = now.after(secs(35));
    let (confirmation, next) = reap.outcome(done(), now, now);
    assert!(confirmation.is_none());
    let (at, reap) = again(next);
    assert_eq!(at, now.after(millis(25)));
    let late = just_before(end);
    let (_, reap) = again(reap.outcome(gone(), late, late).1);
    assert!(matches!(reap.outcome(gone(), end, end).1, Next::Done(_)));
}

#[test]
fn what_is_repeated_in_doubt_is_not_hurried_by_what_passed_long_ago() {
    let (mut reap, now) = unawaited();
    reap.put_in_doubt(now, Some(secs(30)));
    let moving = Outcome::Refused(Fault::new(FaultClass::Moving, "its slot moves"));
    let (_, mut reap) = again(reap.outcome(moving, now, now).1);
    let mut last = Moment::START;
    for _ in 0..9 {
        let (at, next) = again(reap.outcome(done(), now, now).1);
        (last, reap) = (at, next);
    }
    assert_eq!(last, now.after(secs(1)));
    reap.give_up();
}

#[test]
fn a_release_that_nobody_waits_for_is_given_up_when_the_lease_is_over() {
    let (reap, now) = unawaited();
    let (_, reap) = again(reap.outcome(refused(), now, now).1);
    let over = now.after(secs(31));
    let (_, reap) = again(reap.outcome(refused(), over, just_before(over)).1);
    assert!(matches!(reap.outcome(refused(), over, over).1, Next::Done(_)));

    let (reap, _confirmed, now) = awaited();
    let (_, reap) = again(reap.outcome(refused(), now, now).1);
    let (_, reap) = again(reap.outcome(refused(), over, over).1);
    reap.give_up();
}

#[test]
fn whoever_waits_for_a_release_learns_once_that_no_answer_came() {
    let (mut reap, _confirmed, now) = awaited();
    assert!(reap.is_awaited() && !reap.was_answered());
    assert_eq!((reap.timeout(), reap.deadline()), (secs(2), now.after(secs(2))));
    let (_, verdict) = reap.overdue().unwrap();
    assert!(matches!(verdict, Err(LockError::Backend { .. })), "{verdict:?}");
    assert!(!reap.is_awaited() && reap.overdue().is_none());
    assert_eq!(reap.deadline(), Moment::NEVER);
    reap.put_in_doubt(now, None);
    let (_, reap) = again(reap.outcome(done(), now, now).1);
    assert!(reap.was_answered());
    reap.give_up();
}

#[test]
fn what_is_released_once_more_may_be_on_a_server_again() {
    let (reap, now) = unawaited();
    let Next::Done(reap) = reap.outcome(done(), now, now).1 else { panic!("one was enough") };
    assert_eq!(reap.attempt().on_server(), OnServer::Nothing);
    let reap = reap.repeated();
    assert_eq!(reap.attempt().on_server(), OnServer::Asked);
    reap.give_up();
}

#[test]
fn what_was_written_long_after_it_was_asked_is_in_doubt_from_the_end_of_its_connection() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.asked();
    bench.now += 4_000;
    bench.settle(&take, unknown());
    let ended = bench.moment();
    let again = bench.asked();
    bench.settle(&again, refused());
    assert!(bench.cancel(1));
    let release = bench.released();
    let lease = demand("k").terms.ttl.unwrap();
    assert_eq!(release.tombstone(ended), Some(lease + crate::store::PLACE));
}

#[test]
fn a_release_that_may_overtake_the_question_that_it_drops_is_repeated() {
    let given_up = || {
        let mut bench = Bench::new();
        bench.ask(1, demand("k"));
        bench.asked();
        bench.cancel(1);
        (bench.released(), bench.moment())
    };
    let (mut reap, now) = given_up();
    assert_eq!(reap.tombstone(now), None, "on one connection they keep their order");
    reap.doubt_dropped(now);
    assert_eq!(reap.tombstone(now), Some(secs(35)));
    let (mut reap, now) = given_up();
    assert!(reap.dropped_question().is_some());
    reap.doubt_dropped(now);
    assert_eq!(reap.tombstone(now), None, "nothing is dropped any more");
}

#[test]
fn only_keys_of_several_slots_are_released_in_parts() {
    let is_split = |keys: &[&str]| {
        let mut names = keys.iter().map(|key| Names::new("lock", *key));
        let first = names.next().unwrap();
        let names = Names::together(first, names.collect(), "several");
        let kind = if keys.len() > 1 { Kind::All { ordered: false } } else { Kind::Mutex };
        let mut bench = Bench::new();
        bench.ask(1, Demand { names, kind, ..demand("k") });
        bench.asked();
        bench.cancel(1);
        bench.released().is_split()
    };
    assert!(!is_split(&["a"]));
    assert!(is_split(&["a", "b"]));
    assert!(!is_split(&["{a}", "{a}b"]));
}

#[test]
fn the_release_of_a_lock_that_never_expires_is_tried_for_a_day() {
    let mut bench = Bench::new();
    let hold = bench.hold(
        1,
        demand("k").with(|terms| {
            terms.ttl = None;
            terms.renew = false;
        }),
    );
    let _confirmed = bench.release(&hold);
    let (mut reap, now) = (bench.released(), bench.moment());
    assert!(reap.outcome(refused(), now, now).is_none());
    assert_eq!(reap.gone_by(), now.after(secs(86_400 + 1)));
}

#[test]
fn a_release_that_a_panic_drops_delays_no_later_try() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    drop(bench.release(&hold));
    let (pending, mut reap) = (Arc::clone(&bench.pending), bench.released().take());
    reap.begin(&pending, || 2);
    assert!(!pending.is_empty());
    let panics = std::panic::AssertUnwindSafe(move || {
        let _reap = reap;
        panic!("a planted bug");
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(pending.is_empty());
}
