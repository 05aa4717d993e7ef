//! Which of several calls with `newest` of one `Locks` is told of a later one, and when.

use std::pin::Pin;

use super::*;
use crate::engine::core::Work;
use crate::engine::table::Handle;
use crate::lock::Env;

fn is_superseded(outcome: Option<Result<crate::Guard, LockError>>) -> bool {
    matches!(outcome, Some(Err(LockError::Superseded { .. })))
}

fn assert_asks_nothing(core: &Core) {
    let asks = queued(core).iter().any(|entry| entry.starts_with("ask"));
    assert!(!asks, "its question would end the later one");
}

/// An engine whose server is not connected, on a clock that stands still.
struct NewestBench {
    core: Arc<Core>,
    locks: Locks,
    _still: Still,
}

impl NewestBench {
    fn new() -> Self {
        let still = Still::begin();
        let locks = Locks::in_memory();
        Self { core: unconnected(&locks), locks, _still: still }
    }

    /// A call that has joined.
    fn call(&self) -> Pin<Box<impl Future<Output = Result<crate::Guard, LockError>> + use<>>> {
        let mut call = Box::pin(self.locks.mutex("job").newest().acquire());
        assert!(call.as_mut().now_or_never().is_none(), "nothing is connected");
        call
    }
}

impl Drop for NewestBench {
    fn drop(&mut self) {
        end(&self.core);
    }
}

/// What is on the queue.
fn taken(core: &Core) -> Vec<QueueEntry> {
    core.only_path().traffic().drain().0
}

/// No answer comes to the questions on the queue.
fn lose_questions(core: &Core, work: &mut Work) {
    let unknown = Fault::new(FaultClass::Unknown, "the outcome is unknown");
    let failed = |entry: QueueEntry| entry.settled(Outcome::Unknown(unknown.clone()));
    work.settled.extend(taken(core).into_iter().map(failed));
}

/// A call of this number joins, and its thread stands still before it has ended older ones.
fn joins(core: &Core, number: u64, work: &mut Work) {
    let demand = demand("job").with(|terms| terms.newest = true);
    let id = LockId::of(&demand, || number);
    let ends_older = |_: &mut _, env: &mut Env<'_, Handle>| env.effects.ends_older = true;
    core.step_in(&id, Some(&demand), |_| 0, work, ends_older);
}

#[test]
fn a_call_ends_those_that_joined_before_it() {
    let bench = NewestBench::new();
    let (older, mut later) = (bench.call(), bench.call());
    bench.core.act(|work| lose_questions(&bench.core, work));
    assert!(is_superseded(older.now_or_never()));
    assert!(later.as_mut().now_or_never().is_none(), "nobody would run");
}

#[test]
fn a_call_of_which_no_question_has_reached_the_server_ends_at_once() {
    let bench = NewestBench::new();
    let older = bench.call();
    let refused = |entry: QueueEntry| entry.refused("the connection is lost");
    bench.core.act(|work| work.settled.extend(taken(&bench.core).into_iter().map(refused)));
    let _later = bench.call();
    assert!(is_superseded(older.now_or_never()));
}

#[test]
fn a_question_that_is_redirected_is_not_sent_behind_that_of_a_later_call() {
    let bench = NewestBench::new();
    let (core, older) = (&bench.core, bench.call());
    core.act(|work| {
        let moved = taken(core);
        joins(core, u64::MAX - 1, work);
        core.end_older(work);
        for entry in moved {
            core.redirect(entry.redirected(None, None), work);
        }
        core.settle(work);
        assert_asks_nothing(core);
    });
    assert!(is_superseded(older.now_or_never()));
}

#[test]
fn an_older_call_asks_nothing_once_a_later_one_is_on_the_queue() {
    let bench = NewestBench::new();
    // The later one has got its number first.
    let (core, number) = (&bench.core, bench.core.number());
    let older = bench.call();
    core.act(|work| {
        joins(core, number, work);
        lose_questions(core, work);
        core.settle(work);
        assert_asks_nothing(core);
        core.end_older(work);
    });
    assert!(is_superseded(older.now_or_never()));
}

#[test]
fn only_calls_that_no_later_one_has_followed_are_told() {
    let bench = NewestBench::new();
    let _calls = [bench.call(), bench.call(), bench.call()];
    bench.core.act(|work| {
        joins(&bench.core, u64::MAX - 1, work);
        assert_eq!(work.older.len(), 1, "the earlier ones know");
        bench.core.end_older(work);
    });
}
