//! A call that only waits while few others wait at the server.

use super::*;
use crate::domain::mark::{Mark, MarkKind};

fn limited(most: usize) -> Demand {
    demand("k").with(|terms| terms.queue = Some(most))
}

fn crowded(waiting: usize, holder: Option<&str>) -> Outcome {
    let (holder, left) = (holder.map(Into::into), Some(secs(60)));
    Outcome::Answered(Answer::Crowded { waiting, holder, left })
}

#[test]
fn it_asks_by_the_script_which_counts_those_in_line() {
    let mut bench = Bench::new();
    bench.ask(1, limited(3));
    let question = bench.asked();
    let Verb::Acquire(terms) = &question.command.verb else { panic!("{question:?}") };
    assert_eq!((terms.most_waiting, terms.queue), (Some(3), Some(crate::store::PLACE)));
    bench.answer(&question, got());
    bench.granted();
}

#[test]
fn the_one_that_is_too_many_is_refused_at_once_and_sends_nothing_more() {
    let mut bench = Bench::new();
    bench.ask(1, limited(3));
    let question = bench.asked();
    bench.answer(&question, crowded(3, None));
    let (_, error) = bench.failed().remove(0);
    let is_it =
        matches!(&error, LockError::Crowded { key, waiting: 3, in_line: true } if key == "k");
    assert!(is_it && error.is_busy() && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("in line at the server"), "{error}");
    assert!(bench.is_silent() && bench.machine.is_idle());
}

#[test]
fn what_may_still_be_executed_of_the_one_that_is_too_many_is_released() {
    let mut bench = Bench::new();
    bench.ask(1, limited(3));
    let question = bench.asked();
    bench.answer(&question, unknown());
    let question = bench.asked();
    bench.answer(&question, crowded(3, None));
    assert!(matches!(bench.failed().remove(0).1, LockError::Crowded { .. }));
    assert!(!bench.parted().is_empty());
}

#[test]
fn a_call_with_once_gets_done_after_a_success() {
    let mut bench = Bench::new();
    let demand = limited(1).with(|terms| terms.once = Some(secs(60)));
    bench.ask(1, demand);
    let question = bench.asked();
    let mark = Mark::value(MarkKind::Done, Token::fresh("n", "other").wire());
    bench.answer(&question, crowded(1, Some(&mark)));
    let (_, LockError::Done { at, until, .. }) = bench.failed().remove(0) else {
        panic!("it was done")
    };
    assert!(until.duration_since(at).unwrap() >= secs(59), "until the mark ends");
    assert!(bench.is_silent() && bench.machine.is_idle());
}
