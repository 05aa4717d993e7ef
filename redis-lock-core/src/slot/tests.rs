//! The slot by itself: no server, no clock, one event after the other.

#![allow(clippy::result_large_err, reason = "an act that was not picked is no error")]

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::demand::tests::demand;
use crate::error::{Fault, FaultClass};
use crate::store::{Answer, Verb};
use crate::{LockState, Token};

const RTT: u64 = 10;

/// A slot with a clock that the test moves, and what came out of it.
struct Bench {
    slot: Slot<u64>,
    now: u64,
    acts: Vec<Act<u64>>,
}

impl Bench {
    fn new() -> Self {
        Self { slot: Slot::new(), now: 1_000, acts: Vec::new() }
    }

    fn world(&self) -> World {
        World { now: Moment::at_millis(self.now), told: true, manager: "m".into(), spread: 0 }
    }

    fn ask(&mut self, id: u64, demand: Demand) {
        let asked = Moment::at_millis(self.now);
        let waiter = Waiter { id, handle: id, demand: Arc::new(demand), asked };
        self.slot.ask(waiter, &self.world(), &mut self.acts);
    }

    fn tick(&mut self, later: u64) {
        self.now += later;
        self.slot.tick(&self.world(), &mut self.acts);
    }

    fn release(&mut self, hold: &Arc<Hold>) {
        self.slot.release(hold, None, &self.world(), &mut self.acts);
    }

    /// The only command that was sent since the last look.
    fn sent(&mut self) -> Command {
        let mut sent: Vec<_> = self.take(|act| match act {
            Act::Send(command) => Ok(command),
            other => Err(other),
        });
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    fn granted(&mut self) -> (u64, Arc<Hold>) {
        let mut granted = self.take(|act| match act {
            Act::Grant(id, hold) => Ok((id, hold)),
            other => Err(other),
        });
        assert_eq!(granted.len(), 1, "{granted:?}");
        granted.remove(0)
    }

    fn failed(&mut self) -> Vec<(u64, LockError)> {
        self.take(|act| match act {
            Act::Fail(id, error) => Ok((id, error)),
            other => Err(other),
        })
    }

    fn reaped(&mut self) -> Vec<Reap> {
        self.take(|act| match act {
            Act::Reap(reap) => Ok(reap),
            other => Err(other),
        })
    }

    fn take<T>(&mut self, pick: impl Fn(Act<u64>) -> Result<T, Act<u64>>) -> Vec<T> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for act in self.acts.drain(..) {
            match pick(act) {
                Ok(one) => taken.push(one),
                Err(other) => left.push(other),
            }
        }
        self.acts = left;
        taken
    }

    /// Answers the command after a round trip.
    fn answer(&mut self, command: &Command, answer: Result<Answer, Fault>) {
        let sent = Moment::at_millis(self.now);
        self.now += RTT;
        let world = self.world();
        match &command.verb {
            Verb::Renew { .. } | Verb::Check { .. } => {
                self.slot.renewed(command, sent, &answer, &world, &mut self.acts);
            }
            Verb::Yield { .. } => {
                self.slot.yielded(command, sent, answer, &world, &mut self.acts);
            }
            _ => self.slot.asked(command, sent, answer, &world, &mut self.acts),
        }
    }

    /// Acquires for `id` and returns the hold.
    fn hold(&mut self, id: u64, demand: Demand) -> Arc<Hold> {
        self.ask(id, demand);
        let command = self.sent();
        self.answer(&command, HELD);
        self.granted().1
    }
}

const HELD: Result<Answer, Fault> = Ok(Answer::Held { fence: None });

fn busy_with(ttl: Option<Duration>) -> Result<Answer, Fault> {
    let value = Some(Token::fresh("other", "them").wire().to_string());
    Ok(Answer::Busy(Rival { value, ttl, queued: true, repaired: false }))
}

fn fault(class: FaultClass) -> Result<Answer, Fault> {
    Err(Fault::new(class, "planted"))
}

fn impatient() -> Demand {
    Demand { wait: Wait::None, ..demand("k") }
}

fn patient(limit: u64) -> Demand {
    Demand { wait: Wait::For(Duration::from_millis(limit)), ..demand("k") }
}

#[test]
fn an_uncontended_pair_is_two_commands() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.sent();
    assert!(matches!(take.verb, Verb::Take { .. }));
    bench.answer(&take, HELD);
    let (_, hold) = bench.granted();
    bench.release(&hold);
    assert_eq!(bench.reaped().len(), 1);
    assert!(bench.slot.is_idle() && bench.acts.is_empty());
}

#[test]
fn a3_a_lost_answer_is_asked_for_again_with_the_same_token() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.sent();
    bench.answer(&take, fault(FaultClass::Unknown));
    let again = bench.sent();
    assert!(matches!(again.verb, Verb::Acquire { .. }));
    assert_eq!(again.verb.token(), take.verb.token());
    bench.answer(&again, HELD);
    let (_, hold) = bench.granted();
    bench.release(&hold);
    let reap = bench.reaped().remove(0);
    assert!(reap.doubtful, "the first attempt may still arrive");
}

#[test]
fn a9_an_answer_that_took_longer_than_the_lease_hands_out_nothing() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.sent();
    let sent = Moment::at_millis(bench.now);
    bench.now += 40_000;
    let world = bench.world();
    bench.slot.asked(&take, sent, HELD, &world, &mut bench.acts);
    assert_eq!(bench.reaped().len(), 1, "what was granted goes back");
    assert_ne!(bench.sent().verb.token(), take.verb.token(), "a fresh token asks again");
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
    bench.reaped();
    assert_ne!(bench.hold(3, demand("k")).token.wire(), first.token.wire());
}

#[test]
fn busy_and_backend_failures_are_told_apart() {
    let mut bench = Bench::new();
    bench.ask(1, impatient());
    let take = bench.sent();
    bench.answer(&take, Ok(Answer::Busy(Rival::unknown())));
    let acquire = bench.sent();
    bench.answer(&acquire, busy_with(Some(Duration::from_secs(3))));
    let (_, error) = bench.failed().remove(0);
    match error {
        LockError::Busy { holder: Some(holder), .. } => {
            assert_eq!(holder.label.as_deref(), Some("them"));
        }
        other => panic!("{other:?}"),
    }
    assert!(bench.slot.is_idle());

    bench.ask(2, impatient());
    let take = bench.sent();
    bench.answer(&take, fault(FaultClass::Refused));
    assert!(matches!(bench.failed().remove(0).1, LockError::Backend { .. }));
    assert!(bench.slot.is_idle());
}

#[test]
fn i9_the_wait_ends_at_its_bound() {
    let mut bench = Bench::new();
    bench.ask(1, patient(500));
    let take = bench.sent();
    bench.answer(&take, Ok(Answer::Busy(Rival::unknown())));
    let acquire = bench.sent();
    bench.answer(&acquire, busy_with(None));
    bench.tick(499 - 2 * RTT);
    assert!(bench.failed().is_empty());
    bench.tick(1);
    assert!(bench.failed().remove(0).1.is_busy());
    assert_eq!(bench.reaped().len(), 1, "the place in the queue goes back");
    assert!(bench.slot.is_idle());
}

#[test]
fn i4_a_waiter_looks_when_the_holders_lease_ends() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.sent();
    bench.answer(&take, Ok(Answer::Busy(Rival::unknown())));
    let acquire = bench.sent();
    bench.answer(&acquire, busy_with(Some(Duration::from_millis(200))));
    let due = bench.slot.due(Moment::at_millis(bench.now)).since(Moment::at_millis(bench.now));
    assert!((200..=220).contains(&due.as_millis()), "{due:?}");
}

#[test]
fn i5_a_holder_that_renews_is_not_looked_at_all_the_time() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.sent();
    bench.answer(&take, Ok(Answer::Busy(Rival::unknown())));
    let answer = busy_with(Some(Duration::from_millis(50)));
    let begun = bench.now;
    for _ in 0..12 {
        let command = bench.sent();
        bench.answer(&command, answer.clone());
        let now = Moment::at_millis(bench.now);
        let due = bench.slot.due(now).since(now);
        bench.tick(u64::try_from(due.as_millis()).unwrap() + 1);
    }
    let seconds = (bench.now - begun) as f64 / 1_000.0;
    assert!(12.0 / seconds <= 4.0, "{} looks a second", 12.0 / seconds);
}

#[test]
fn i7_a_waiter_that_leaves_does_not_take_the_lock_with_it() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.ask(3, demand("k"));
    let world = bench.world();
    assert!(bench.slot.cancel(2, &world, &mut bench.acts));
    bench.release(&first);
    assert_eq!(bench.granted().0, 3);
}

#[test]
fn a2_an_abandoned_question_is_taken_back_also_when_its_answer_comes_later() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.sent();
    let world = bench.world();
    bench.slot.cancel(1, &world, &mut bench.acts);
    assert_eq!(bench.reaped().len(), 1);
    assert!(bench.slot.is_idle());
    bench.answer(&take, HELD);
    assert_eq!(bench.reaped().len(), 1);
    bench.answer(&take, fault(FaultClass::Unknown));
    assert!(bench.reaped().remove(0).doubtful);
}

#[test]
fn the_turn_of_a_process_ends_and_the_server_decides() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.ask(3, demand("k"));
    bench.release(&first);
    let (id, second) = bench.granted();
    assert_eq!(id, 2, "within the turn the lock is handed on at once");
    bench.now += 20;
    bench.release(&second);
    let decide = bench.sent();
    assert!(matches!(decide.verb, Verb::Yield { .. }), "{decide:?}");
    bench.answer(&decide, Ok(Answer::HandedOver));
    assert!(bench.acts.is_empty(), "{:?}", bench.acts);
    let Verb::Yield { next, .. } = &decide.verb else { unreachable!() };
    assert!(bench.slot.contends_as(next));
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
        match bench.acts.pop() {
            Some(Act::Grant(id, next)) => {
                assert_eq!(id, passes);
                hold = next;
            }
            Some(Act::Send(command)) => {
                assert!(matches!(command.verb, Verb::Yield { .. }), "{command:?}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((1_000..10_000).contains(&passes), "{passes}");
}

#[test]
fn a_holder_that_knows_who_waits_elsewhere_ends_its_turn_and_gives_the_lock_away_at_once() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    let world = bench.world();
    bench.slot.waited_for(&world);
    bench.ask(2, demand("k"));
    bench.now += 2;
    bench.release(&first);
    let decide = bench.sent();
    assert!(matches!(decide.verb, Verb::Yield { .. }), "two of 10 ms have passed: {decide:?}");
    bench.answer(&decide, HELD);
    let second = bench.granted().1;
    let waited_for = |bench: &mut Bench| match bench.reaped().remove(0).command.verb {
        Verb::Release { waited_for, .. } => waited_for,
        other => panic!("{other:?}"),
    };
    bench.release(&second);
    assert!(!waited_for(&mut bench), "the server kept it here, so nobody waited");
    let third = bench.hold(3, demand("k"));
    bench.slot.waited_for(&world);
    bench.release(&third);
    assert!(waited_for(&mut bench));
}

#[test]
fn a_hint_that_overtakes_the_answer_is_not_lost() {
    let mut bench = Bench::new();
    let first = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    bench.now += 20;
    bench.release(&first);
    let decide = bench.sent();
    let world = bench.world();
    bench.slot.hinted(&world, &mut bench.acts);
    bench.answer(&decide, Ok(Answer::HandedOver));
    assert!(matches!(bench.sent().verb, Verb::Acquire { .. }));
}

#[test]
fn i12_a_flood_of_false_hints_is_followed_at_a_bounded_pace() {
    let mut bench = Bench::new();
    bench.ask(1, demand("k"));
    let take = bench.sent();
    bench.answer(&take, Ok(Answer::Busy(Rival::unknown())));
    let mut questions = 0;
    let end = bench.now + 1_000;
    while bench.now < end {
        for question in bench.take(|act| if let Act::Send(it) = act { Ok(it) } else { Err(act) }) {
            questions += 1;
            bench.answer(&question, busy_with(Some(Duration::from_secs(3))));
        }
        bench.tick(1);
        let world = bench.world();
        bench.slot.hinted(&world, &mut bench.acts);
    }
    assert!((20..=102).contains(&questions), "{questions} questions in a second");
    // Word of a release by force may be a lie just the same.
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    for _ in 0..1_000 {
        bench.tick(1);
        let world = bench.world();
        bench.slot.alarmed(&world, &mut bench.acts);
    }
    let checks = bench.take(|act| if let Act::Send(it) = act { Ok(it) } else { Err(act) }).len();
    assert!((20..=101).contains(&checks), "{checks} checks in a second");
    bench.release(&hold);
}

#[test]
fn c3_c4_a_missed_renewal_is_tried_again_until_the_lease_ends() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.tick(10_001);
    let renew = bench.sent();
    bench.answer(&renew, fault(FaultClass::Late));
    assert_eq!(hold.state(Moment::at_millis(bench.now)), LockState::Uncertain);
    bench.tick(300);
    let renew = bench.sent();
    bench.answer(&renew, Ok(Answer::Done));
    assert_eq!(hold.state(Moment::at_millis(bench.now)), LockState::Held);
    bench.tick(29_700);
    assert_eq!(hold.loss(Moment::at_millis(bench.now)), Some(crate::LossReason::Expired));
}

#[test]
fn c1_nothing_is_renewed_after_the_release() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.tick(10_001);
    let renew = bench.sent();
    bench.release(&hold);
    bench.reaped();
    bench.answer(&renew, Ok(Answer::Done));
    bench.tick(60_000);
    assert!(bench.acts.is_empty() && bench.slot.is_idle());
}

#[test]
fn c6_c7_a_lock_that_is_somebody_elses_or_nobodys_is_lost() {
    let other = Token::fresh("m", "");
    for (answer, reason) in [
        (
            Answer::Gone { by: Some(other.wire().to_string()), because: None },
            crate::LossReason::Overwritten { by: other.clone() },
        ),
        (Answer::Gone { by: None, because: None }, crate::LossReason::Removed { because: None }),
    ] {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k"));
        bench.tick(10_001);
        let renew = bench.sent();
        bench.answer(&renew, Ok(answer));
        assert_eq!(hold.loss(Moment::at_millis(bench.now)), Some(reason));
        assert!(bench.reaped().is_empty(), "what is not ours is left alone");
    }
}

#[test]
fn local_hand_overs_of_a_fenced_lock_use_up_their_numbers_and_then_ask() {
    let fenced = || Demand { fenced: true, ..demand("k") };
    let mut bench = Bench::new();
    bench.ask(0, fenced());
    let acquire = bench.sent();
    bench.answer(&acquire, Ok(Answer::Held { fence: Some(1_031) }));
    let (_, mut hold) = bench.granted();
    let mut last = hold.fence.unwrap();
    assert_eq!(last, 1_000);
    for id in 1..=u64::from(held::FENCES) {
        bench.ask(id, fenced());
        bench.release(&hold);
        if id == u64::from(held::FENCES) {
            assert!(matches!(bench.sent().verb, Verb::Yield { .. }), "no number is left");
            break;
        }
        hold = bench.granted().1;
        assert!(hold.fence.unwrap() > last);
        last = hold.fence.unwrap();
    }
}

#[test]
fn a_shutdown_ends_holds_and_waits() {
    let mut bench = Bench::new();
    let hold = bench.hold(1, demand("k"));
    bench.ask(2, demand("k"));
    let world = bench.world();
    bench.slot.close(&LockError::Shutdown, "test", &world, &mut bench.acts);
    assert!(matches!(bench.failed().remove(0), (2, LockError::Shutdown)));
    assert_eq!(bench.reaped().len(), 1);
    assert_eq!(hold.state(Moment::at_millis(bench.now)), LockState::Lost);
    assert!(bench.slot.is_idle());
}
