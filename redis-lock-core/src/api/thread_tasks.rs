//! Finds calls that would block the thread of a current-thread runtime for ever.
//!
//! A call that blocks such a thread keeps all tasks of its runtime from going on. When one of them
//! has the lock that the call waits for, or gets it first, the call would never end.

use std::task::{Context, Poll, Waker};

use tokio::runtime::{self, Handle, RuntimeFlavor};
use tokio::task::coop;

use crate::domain::demand::Demand;
use crate::domain::names::Names;
use crate::{Locks, Wait};

/// More than the budget of any task.
const MOST_BUDGET: usize = 256;

/// The current-thread runtime that this code belongs to, if any. Tokio is asked each time, because a
/// thread may run several runtimes, and several threads may run one.
pub(crate) fn current_thread_runtime() -> Option<runtime::Id> {
    let handle = Handle::try_current().ok()?;
    (handle.runtime_flavor() == RuntimeFlavor::CurrentThread).then(|| handle.id())
}

/// Whether this thread polls a task, or a future that a runtime blocks on. Threads for blocking work,
/// and those that have only entered a runtime, have no budget, and stop no task.
fn polls_a_task() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let mut spent = Vec::new();
    let mut has_limit = false;
    while !has_limit && spent.len() < MOST_BUDGET {
        match coop::poll_proceed(&mut context) {
            Poll::Ready(one) => spent.push(one),
            Poll::Pending => has_limit = true,
        }
    }
    // Each gives back what it took, so the last one goes first.
    while spent.pop().is_some() {}
    has_limit
}

/// The key that this thread would wait for without an end if `demand` blocked it now: tasks of the
/// runtime that it drives hold it, or wait for it and came first.
pub(crate) fn blocked_for_ever(locks: &Locks, demand: &Demand) -> Option<String> {
    demand.runtime.filter(|_| demand.terms.wait == Wait::Forever)?;
    let blocking = demand.names.all().find(|names| is_taken(locks, names, demand))?;
    polls_a_task().then(|| blocking.user_key().to_owned())
}

/// Whether tasks of the same runtime keep this key from `demand`.
fn is_taken(locks: &Locks, names: &Names, demand: &Demand) -> bool {
    let mut beside = 0_u32;
    locks.link().any_demand(names.main(), &mut |other, has_lock| {
        // One that waits may get the lock before its time is over, and can't go on then.
        if other.runtime != demand.runtime || !(has_lock || other.terms.wait != Wait::None) {
            return false;
        }
        beside += 1;
        let is_full = demand.kind.limit().is_some_and(|limit| beside >= limit);
        is_full || !other.kind.fits_beside(demand.kind)
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::LockError;

    fn one_thread() -> runtime::Runtime {
        runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn a_wait_that_was_given_up_on_another_thread_is_no_obstacle() {
        let locks = Locks::in_memory();
        let elsewhere = locks.clone();
        let held = thread::spawn(move || elsewhere.mutex("k").blocking_acquire().unwrap());
        let held = held.join().unwrap();
        one_thread().block_on(async {
            let mut waits = Box::pin(locks.mutex("k").acquire());
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            thread::spawn(move || drop(waits)).join().unwrap();
            held.blocking_release().unwrap();
            let own = locks.mutex("k").blocking_acquire();
            assert!(own.is_ok(), "nobody else waits for it: {own:?}");
        });
    }

    #[test]
    fn a_call_that_blocks_behind_a_task_with_a_timed_wait_is_refused() {
        let locks = Locks::in_memory();
        let elsewhere = locks.clone();
        let held = thread::spawn(move || elsewhere.mutex("k").blocking_acquire().unwrap());
        let held = held.join().unwrap();
        one_thread().block_on(async {
            let minute = std::time::Duration::from_secs(60);
            let mut waits = Box::pin(locks.mutex("k").wait(minute).acquire());
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            // The task would get the lock first, and could not be polled.
            let own = locks.mutex("k").blocking_acquire();
            let is_it = matches!(own, Err(LockError::Reentrant { other_task: true, .. }));
            assert!(is_it, "{own:?}");
            drop(waits);
            held.blocking_release().unwrap();
        });
    }

    #[test]
    fn a_thread_that_polls_a_task_is_told_from_others_and_keeps_its_budget() {
        assert!(!polls_a_task());
        let runtime = one_thread();
        let entered = runtime.enter();
        assert!(!polls_a_task(), "it does not drive the runtime");
        drop(entered);
        runtime.block_on(async {
            assert!(polls_a_task());
            assert!(coop::has_budget_remaining(), "it was given back");
            assert!(tokio::spawn(async { polls_a_task() }).await.unwrap());
            let blocking = tokio::task::spawn_blocking(polls_a_task);
            assert!(!blocking.await.unwrap());
        });
    }
}
