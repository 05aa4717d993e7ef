//! A call that is held back because many others of its process wait before it.

use super::*;
use crate::domain::demand::LockTerms;
use crate::domain::kind::Kind;

const FULL: LineView = LineView::Full { is_refused: false };

/// One of the many, that waits for this long.
fn writer(wait: Wait) -> Demand {
    let demand = demand("k").with(|terms| {
        terms.wait = wait;
        terms.outage = secs(10);
    });
    Demand { kind: Kind::Write, ..demand }
}

impl Bench {
    /// Has a call come that is held back.
    fn held_back(wait: Wait) -> Self {
        let mut bench = Self::new();
        bench.line = FULL;
        bench.ask(1, writer(wait));
        assert!(bench.is_silent() && bench.machine.standing() == LineStanding::HeldBack);
        bench
    }

    /// Has it hear what the first of its line has heard.
    fn hear(&mut self, first: &Self) {
        let now = self.moment();
        self.machine.hear(first.machine.heard().unwrap(), now);
    }

    fn comes_forward(&mut self) -> Question {
        let now = self.moment();
        self.machine.come_forward(now);
        self.tick(0);
        self.asked()
    }
}

/// The first of the line, at the same time.
fn first(bench: &Bench, outcome: Outcome) -> Bench {
    let mut first = Bench::new();
    first.now = bench.now;
    first.ask(9, writer(Wait::Forever));
    let question = first.asked();
    first.settle(&question, outcome);
    first
}

#[test]
fn waiters_for_several_keys_queue_unless_a_mark_may_answer_them() {
    let all = |change: fn(&mut LockTerms)| {
        let demand = writer(Wait::Forever).with(change);
        Demand { kind: Kind::All { ordered: false }, ..demand }.waits_in_line()
    };
    assert!(all(|_| {}));
    assert!(!all(|terms| terms.once = Some(secs(60))) && !all(|terms| terms.same = Some(1)));
    assert!(!all(|terms| terms.newest = true) && !all(|terms| terms.wait = Wait::None));
}

#[test]
fn a_server_that_answers_others_is_slow_and_not_out() {
    let mut bench = Bench::new();
    bench.ask(1, writer(Wait::Forever));
    bench.asked();
    for _ in 0..10 {
        bench.tick(9_000);
        bench.answered = bench.moment();
    }
    assert!(bench.is_silent(), "its question is among those that the server has yet to answer");
    bench.tick(9_000);
    assert!(bench.is_silent());
    bench.tick(2_000);
    assert!(matches!(bench.failed().as_slice(), [(1, LockError::Backend { .. })]));
}

#[test]
fn a_server_that_answers_others_and_fails_here_is_out() {
    let mut bench = Bench::new();
    bench.ask(1, writer(Wait::Forever));
    for _ in 0..11 {
        for question in bench.questions() {
            bench.settle(&question, refused());
        }
        bench.tick(1_000);
        bench.answered = bench.moment();
    }
    assert!(matches!(bench.failed().as_slice(), [(1, LockError::Backend { .. })]));
}

#[test]
fn it_asks_nothing_until_it_comes_forward() {
    let mut bench = Bench::held_back(Wait::Forever);
    for event in [Machine::on_connected, Machine::on_listening] {
        bench.step(event);
    }
    bench.tick(9_000);
    assert!(bench.is_silent());
    let question = bench.comes_forward();
    assert!(bench.machine.standing() == LineStanding::Asks);
    bench.answer(&question, got());
    bench.granted();
}

#[test]
fn who_passes_others_by_or_does_not_wait_or_comes_where_it_may_be_free_asks_at_once() {
    let limited = |line| {
        let demand = writer(Wait::Forever).with(|terms| terms.max_waiters = Some(100));
        (demand, line)
    };
    let refused = LineView::Full { is_refused: true };
    for ((demand, line), asks) in [
        ((writer(Wait::None), FULL), true),
        ((writer(Wait::Forever).with(|terms| terms.fair = false), FULL), true),
        ((writer(Wait::Forever), LineView::HasRoom), true),
        (limited(FULL), true),
        (limited(refused), false),
        ((writer(Wait::Forever), refused), false),
        ((Demand { kind: Kind::All { ordered: false }, ..writer(Wait::Forever) }, refused), false),
        ((Demand { kind: Kind::Mutex, ..writer(Wait::Forever) }, refused), true),
    ] {
        let mut bench = Bench::new();
        bench.line = line;
        let what = format!("{demand:?}");
        bench.ask(1, demand);
        assert_eq!(bench.is_silent(), !asks, "{what}");
    }
}

#[test]
fn a_waiter_is_not_refused_because_of_later_ones() {
    let mut bench = Bench::new();
    bench.line = LineView::Full { is_refused: true };
    bench.waiting = 40;
    bench.ask(1, writer(Wait::Forever).with(|terms| terms.max_waiters = Some(50)));
    assert!(bench.is_silent());
    let question = bench.comes_forward();
    bench.waiting = 60;
    bench.answer(&question, busy_with(Some(secs(20))));
    let failed = bench.failed();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn at_the_end_of_its_wait_it_is_busy_by_an_answer_that_is_newer_than_itself() {
    let mut bench = Bench::held_back(Wait::For(secs(2)));
    bench.tick(1_000);
    let first = first(&bench, busy_with(Some(secs(20))));
    bench.hear(&first);
    bench.tick(999);
    assert!(bench.failed().is_empty());
    bench.tick(1);
    let (_, error) = bench.failed().remove(0);
    assert!(matches!(&error, LockError::Busy { holder: Some(_), .. }), "{error:?}");
    assert!(bench.is_silent() && bench.parted().is_empty());
}

#[test]
fn without_such_an_answer_it_asks_at_the_end_of_its_wait() {
    let early = first(&Bench::new(), busy_with(Some(secs(20))));
    let mut bench = Bench::new();
    bench.tick(100);
    bench.line = FULL;
    bench.ask(1, writer(Wait::For(secs(2))));
    bench.hear(&early);
    bench.tick(2_000);
    let question = bench.asked();
    assert!(bench.failed().is_empty());
    bench.answer(&question, busy_with(Some(secs(20))));
    assert!(matches!(bench.failed().remove(0).1, LockError::Busy { .. }));
    assert_eq!(bench.parted().len(), 1, "its place is given up");
}

#[test]
fn an_outage_of_the_first_is_its_own() {
    let mut bench = Bench::held_back(Wait::Forever);
    let fault = Fault::new(FaultClass::Refused, "planted");
    let first = first(&bench, Outcome::Refused(fault));
    bench.tick(9_000);
    bench.hear(&first);
    bench.tick(900);
    assert!(bench.failed().is_empty());
    bench.tick(200);
    let (_, error) = bench.failed().remove(0);
    assert!(matches!(&error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains("planted"), "{error}");
}

#[test]
fn who_comes_forward_in_an_outage_has_waited_through_it() {
    let mut bench = Bench::held_back(Wait::Forever);
    let first = first(&bench, Outcome::Refused(Fault::new(FaultClass::Refused, "planted")));
    bench.tick(9_000);
    bench.hear(&first);
    bench.comes_forward();
    bench.tick(1_100);
    assert!(matches!(bench.failed().remove(0).1, LockError::Backend { .. }));
}

#[test]
fn while_the_server_answers_the_first_it_goes_on_waiting() {
    let mut bench = Bench::held_back(Wait::Forever);
    for _ in 0..2 {
        let first = first(&bench, busy_with(Some(secs(20))));
        let pause = bench.machine.due().since(bench.moment());
        assert!(pause >= secs(9), "{pause:?}");
        bench.tick(u64::try_from(pause.as_millis()).unwrap() - 1_000);
        bench.hear(&first);
        bench.tick(1_000);
    }
    assert!(bench.failed().is_empty() && bench.is_silent());
}
