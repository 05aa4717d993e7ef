//! Beginning by a message, before the server has confirmed the grant.

use super::kept::lingering;
use super::*;
use crate::LossReason;

/// A caller that waits in the queue, and the number of its last asking.
fn waiting(demand: Demand) -> (Bench, Option<u32>) {
    let mut bench = Bench::new();
    bench.ask(1, demand);
    let take = bench.asked();
    bench.answer(&take, busy_unknown());
    let acquire = bench.asked();
    let asking = asking_of(&acquire);
    bench.answer(&acquire, busy_with(Some(secs(20))));
    (bench, asking)
}

fn asking_of(question: &Question) -> Option<u32> {
    match &question.command.verb {
        Verb::Acquire(terms) => terms.asking,
        other => panic!("no acquisition: {other:?}"),
    }
}

impl Bench {
    fn announced(&mut self, asking: Option<u32>) {
        let token = self.machine.token().expect("it contends").to_string();
        self.step(|machine, env, out| machine.hinted(&token, false, asking, env, out));
    }

    /// Begins by a message. Returns the hold and the question that confirms it.
    fn begun(&mut self, asking: Option<u32>) -> (Arc<Hold>, Question) {
        self.announced(asking);
        let (id, hold) = self.granted();
        assert_eq!(id, 1);
        let question = self.asked();
        let renews = matches!(&question.command.verb, Verb::Renew { ttl, .. } if *ttl == hold.demand.terms.ttl);
        assert!(renews, "{question:?}");
        (hold, question)
    }
}

#[test]
fn a_hold_begins_by_the_message_and_counts_on_a_claim_from_the_asking_on() {
    let (mut bench, asking) = waiting(lingering());
    assert_eq!(asking, Some(1), "of those that ask for a place");
    bench.tick(100);
    let asked_at = bench.now - 100 - RTT;
    let (hold, question) = bench.begun(asking);
    // A claim of a second, less 1 % and 2 ms.
    assert_eq!(hold.deadline(), Moment::at_millis(asked_at + 988));
    assert_eq!(hold.since, bench.moment());
    bench.answer(&question, done());
    let confirmed = Moment::at_millis(bench.now - RTT);
    assert!(hold.deadline() > confirmed.after(secs(9)), "the whole ttl: {:?}", hold.deadline());
    bench.release(&hold);
}

#[test]
fn nothing_begins_by_a_message_about_an_older_asking() {
    let (mut bench, first) = waiting(lingering());
    bench.tick(1_000);
    let look = bench.asked();
    assert!(asking_of(&look) > first);
    bench.answer(&look, busy_with(Some(secs(20))));
    bench.announced(first);
    assert!(bench.grants().is_empty());
    let _claim = bench.asked();
}

#[test]
fn nothing_begins_where_less_than_half_of_the_claim_is_left() {
    for (passed, begins) in [(470, true), (490, false)] {
        let (mut bench, asking) = waiting(lingering());
        bench.now += passed;
        bench.announced(asking);
        assert_eq!(bench.grants().len(), usize::from(begins), "after {passed} ms");
        bench.questions();
    }
}

#[test]
fn nothing_begins_while_a_question_is_open() {
    let (mut bench, first) = waiting(lingering());
    bench.tick(1_000);
    let look = bench.asked();
    for asking in [first, asking_of(&look)] {
        bench.announced(asking);
        assert!(bench.is_silent(), "{:?}", bench.effects);
    }
    bench.answer(&look, got());
    let (_, hold) = bench.granted();
    bench.release(&hold);
}

#[test]
fn only_callers_that_let_a_lease_linger_begin_early() {
    let short = demand("k").with(|terms| {
        (terms.linger, terms.ttl) = (Some(secs(5)), Some(Duration::from_millis(400)));
    });
    for (other, why) in [
        (demand("k"), "no linger"),
        (lingering().with(|terms| terms.fenced = true), "it needs a fencing number"),
        (lingering().with(|terms| terms.renew = false), "its lease is as it was asked for"),
        (short, "its lease is shorter than what has to be left"),
    ] {
        let mut bench = Bench::new();
        bench.ask(1, other);
        let mut question = bench.asked();
        if !matches!(question.command.verb, Verb::Acquire(_)) {
            bench.answer(&question, busy_unknown());
            question = bench.asked();
        }
        bench.answer(&question, busy_with(Some(secs(20))));
        let asking = asking_of(&question).or(Some(1));
        bench.announced(asking);
        assert!(bench.grants().is_empty(), "{why}");
        bench.questions();
    }
}

#[test]
fn a_hold_whose_claim_has_lapsed_is_lost_with_the_answer() {
    let (mut bench, asking) = waiting(lingering());
    let (hold, question) = bench.begun(asking);
    bench.answer(&question, gone());
    assert!(hold.loss(bench.moment()).is_some());
}

#[test]
fn a_hold_that_nobody_confirms_ends_with_the_claim() {
    let (mut bench, asking) = waiting(lingering());
    let (hold, question) = bench.begun(asking);
    bench.tick(900);
    assert!(hold.loss(bench.moment()).is_none());
    bench.tick(100);
    assert_eq!(hold.loss(bench.moment()), Some(LossReason::Expired));
    bench.answer(&question, done());
    assert!(hold.loss(bench.moment()).is_some(), "an answer that comes later changes nothing");
}

#[test]
fn a_confirmation_that_was_refused_is_asked_for_again_within_the_claim() {
    let (mut bench, asking) = waiting(lingering());
    let (hold, question) = bench.begun(asking);
    bench.answer(&question, refused());
    let due = bench.machine.due();
    assert!(due <= bench.moment().after(Duration::from_millis(100)), "{due:?}");
    bench.tick(100);
    let again = bench.asked();
    bench.answer(&again, done());
    assert!(hold.remaining(bench.moment()) > secs(5));
    bench.release(&hold);
}

#[test]
fn the_next_caller_of_the_process_gets_it_before_it_is_confirmed() {
    let (mut bench, asking) = waiting(lingering());
    bench.ask(2, lingering());
    let (hold, question) = bench.begun(asking);
    bench.release(&hold);
    let (id, second) = bench.granted();
    assert_eq!((id, second.deadline()), (2, hold.deadline()));
    bench.answer(&question, done());
    assert!(second.remaining(bench.moment()) > secs(5));
    bench.release(&second);
}

#[test]
fn a_release_before_the_confirmation_is_sent_behind_it() {
    let (mut bench, asking) = waiting(lingering());
    let (hold, _question) = bench.begun(asking);
    bench.release(&hold);
    bench.released();
    assert!(bench.machine.is_idle());
}
