//! Which of several calls with `newest` of one `Locks` is told of a later one, and when.

use super::*;
use crate::engine::core::Work;
use crate::engine::table::Handle;
use crate::lock::Env;

fn is_superseded(outcome: Option<Result<crate::Guard, LockError>>) -> bool {
    matches!(outcome, Some(Err(LockError::Superseded { .. })))
}

/// No answer comes to the questions on the queue.
fn lose_questions(core: &Core, work: &mut Work) {
    let unknown = Fault::new(FaultClass::Unknown, "the outcome is unknown");
    let (asked, _) = core.only_path().traffic().drain();
    let failed = |entry: QueueEntry| entry.settled(Outcome::Unknown(unknown.clone()));
    work.settled.extend(asked.into_iter().map(failed));
}

/// Something that is done when a call joins, in the same step.
fn joins(core: &Core, work: &mut Work) -> LockId {
    let demand = demand("job").with(|terms| terms.newest = true);
    let id = LockId::of(&demand, || u64::MAX - 1);
    let ends_older = |_: &mut _, env: &mut Env<'_, Handle>| env.effects.ends_older = true;
    core.step_in(&id, Some(&demand), |_| 0, work, ends_older);
    id
}

#[test]
fn a_call_ends_those_that_joined_before_it() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = unconnected(&locks);
    let (mut older, mut later) =
        (pin!(locks.mutex("job").newest().acquire()), pin!(locks.mutex("job").newest().acquire()));
    assert!(older.as_mut().now_or_never().is_none(), "nothing is connected");
    assert!(later.as_mut().now_or_never().is_none(), "nothing is connected");
    core.act(|work| lose_questions(&core, work));
    assert!(is_superseded(older.now_or_never()));
    assert!(later.as_mut().now_or_never().is_none(), "nobody would run");
    end(&core);
}

#[test]
fn an_older_call_asks_nothing_once_a_later_one_is_on_the_queue() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = unconnected(&locks);
    let mut older = pin!(locks.mutex("job").newest().acquire());
    assert!(older.as_mut().now_or_never().is_none(), "nothing is connected");
    core.act(|work| {
        joins(&core, work);
        // The thread of the later one stands still before it has ended the older one.
        let ended_late = std::mem::take(&mut work.older);
        lose_questions(&core, work);
        core.settle(work);
        let asks = queued(&core).iter().any(|entry| entry.starts_with("ask"));
        assert!(!asks, "its question would end the later one");
        work.older = ended_late;
        core.end_older(work);
    });
    assert!(is_superseded(older.now_or_never()));
    end(&core);
}

#[test]
fn only_calls_that_no_later_one_has_followed_are_told() {
    let _still = Still::begin();
    let locks = Locks::in_memory();
    let core = unconnected(&locks);
    let mut calls: Vec<_> =
        (0..3).map(|_| Box::pin(locks.mutex("job").newest().acquire())).collect();
    for call in &mut calls {
        assert!(call.as_mut().now_or_never().is_none(), "nothing is connected");
    }
    core.act(|work| {
        joins(&core, work);
        assert_eq!(work.older.len(), 1, "the earlier ones know");
    });
    end(&core);
}
