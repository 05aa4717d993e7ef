//! Nested calls: what holds are around a call, and calls that block the thread of a holder.

use std::cell::RefCell;
use std::thread;

use tokio::runtime::{self, Handle, RuntimeFlavor};
use tokio::task;

use crate::api::note::{Note, address};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::names::Names;
use crate::lock::hold::Hold;
use crate::{Guard, LockError, LockKey, LockRequest, Locks, Wait};

thread_local! {
    static HELD: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
}

/// Removes, on drop, all notes that were added since its creation, also after a panic.
#[derive(Debug)]
#[must_use]
pub(crate) struct Frame {
    height: usize,
}

/// Begins a poll of a body; `guard` is what it holds already.
pub(crate) fn enter(guard: Option<&Guard>) -> Frame {
    let height = HELD.try_with(|held| held.borrow().len()).unwrap_or(0);
    if let Some(guard) = guard {
        note(guard);
    }
    Frame { height }
}

/// The body that is being polled holds `guard` from now on.
pub(crate) fn note(guard: &Guard) {
    // While the thread-local storage is destroyed, nested calls are not supported.
    let _ = HELD.try_with(|held| held.borrow_mut().push(guard.note()));
}

impl Drop for Frame {
    fn drop(&mut self) {
        // One by one, outside the borrow: the last reference to a hold may run other code.
        while let Ok(Some(note)) = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if held.len() > self.height { held.pop() } else { None }
        }) {
            drop(note);
        }
    }
}

/// The keys that this code holds, for people; `None` when it holds none.
pub(crate) fn held() -> Option<Box<str>> {
    let task = task::try_id();
    let held = HELD.try_with(|held| {
        let held = held.borrow();
        let own = held.iter().filter(|note| note.task == task);
        own.map(|note| format!("`{}`", note.hold.demand.key())).collect::<Vec<_>>()
    });
    held.ok().filter(|held| !held.is_empty()).map(|held| held.join(", ").into())
}

/// A hold that an inner call joins.
#[derive(Debug)]
pub(crate) struct Outer {
    locks: Locks,
    note: Note,
}

/// The hold that `request` would wait for itself on; `None` when this code holds none of its keys.
///
/// # Errors
/// `Reentrant`, unless the request asks to join; `WrongHold` when it asks for more than the outer hold
/// is.
pub(crate) fn outer(request: &LockRequest, caller: Caller) -> Result<Option<Outer>, LockError> {
    // Most callers hold nothing.
    if HELD.try_with(|held| held.borrow().is_empty()).unwrap_or(true) {
        return Ok(None);
    }
    let (locks, task) = (&request.locks, task::try_id());
    let waits_on = |note: &Note| note.task == task || would_block_for_ever(request, caller);
    let holds = |note: &Note, key: &LockKey| {
        note.manager == address(locks) && note.hold.demand.names.cover(key.as_str())
    };
    let found = HELD.try_with(|held| {
        let held = held.borrow();
        // The innermost hold first, so that a hold that joined another one can itself be joined.
        request.keys.as_slice().iter().find_map(|key| {
            let note = held.iter().rev().find(|note| holds(note, key) && waits_on(note))?;
            Some((key.clone(), note.clone()))
        })
    });
    let Ok(Some((key, note))) = found else { return Ok(None) };
    let LockRequest { kind, options, .. } = request;
    if note.task != task {
        return Err(LockError::Reentrant { key: key.to_string(), other_task: true });
    }
    if !options.reentrant {
        return Err(LockError::Reentrant { key: key.to_string(), other_task: false });
    }
    let outer = &note.hold;
    if let Some(more) = request.keys.as_slice().iter().find(|key| !holds(&note, key)) {
        let reason = format!(
            "`{key}` is held already and this key is not, and a reentrant call can only join a hold \
             that has all of its keys; lock both in the outer call"
        );
        return Err(LockError::WrongHold { key: more.to_string(), reason });
    }
    if !outer.kind().covers(*kind) {
        let reason = "it is held already as another kind of lock, and a reentrant call can only join \
                      the same kind; use the outer call's kind";
        return Err(LockError::WrongHold { key: key.to_string(), reason: reason.into() });
    }
    if options.fenced && outer.fence.is_none() {
        let reason = "a reentrant call shares the fencing number of the hold that it joins, and that \
                      hold has none; ask for one in the outer call";
        return Err(LockError::WrongHold { key: key.to_string(), reason: reason.into() });
    }
    if options.slotted && outer.slot.is_none() {
        let reason = "a reentrant call shares the slot of the hold that it joins, and that hold has none; \
                      ask for one in the outer call";
        return Err(LockError::WrongHold { key: key.to_string(), reason: reason.into() });
    }
    Ok(Some(Outer { locks: locks.clone(), note }))
}

/// Whether this thread does nothing else until the request has its lock.
fn would_block_for_ever(request: &LockRequest, caller: Caller) -> bool {
    caller == Caller::Thread && request.options.wait == Wait::Forever
}

impl Outer {
    /// The request for a turn: those who join share the lease, and exclude each other.
    ///
    /// # Errors
    /// `Lost` when there is nothing left to join.
    pub(crate) fn turn(&self, request: &LockRequest) -> Result<LockRequest, LockError> {
        let Note { hold, turn, .. } = &self.note;
        if let Some(reason) = self.note.end(Moment::now()) {
            return Err(hold.lost_error(reason));
        }
        // Calls that joined the same hold exclude each other: be that the outermost one, or another
        // call's turn.
        let meeting = turn.as_ref().map_or(hold, |turn| &turn.hold).token.to_string();
        let mut turn = self.locks.turns().mutex(meeting).never_expires().wait(request.options.wait);
        turn.options.title = request.options.title;
        Ok(turn)
    }

    /// The guard of a call whose turn has come.
    ///
    /// # Errors
    /// Those of waiting for the turn, in terms of the hold.
    pub(crate) fn joined(self, turn: Result<Guard, LockError>) -> Result<Guard, LockError> {
        self.note.join();
        let ended = self.note.end(Moment::now());
        let Note { id, hold, turn: outer, .. } = self.note;
        match (turn, ended) {
            // The outer body has ended while this call waited for its turn.
            (Ok(_) | Err(LockError::Busy { .. }), Some(reason)) => Err(hold.lost_error(reason)),
            (Ok(turn), None) => Ok(Guard::joined(self.locks, id, hold, turn, outer)),
            (Err(LockError::Busy { waited, holder, .. }), None) => {
                Err(LockError::Busy { key: hold.demand.key().to_string(), waited, holder })
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// What waits: a task, while others go on, or the whole thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    Task,
    Thread,
}

/// The current-thread runtime that this code belongs to, if any. Tokio is asked each time, because a
/// thread may run several runtimes, and several threads may run one.
pub(crate) fn current_thread_runtime() -> Option<runtime::Id> {
    let handle = Handle::try_current().ok()?;
    (handle.runtime_flavor() == RuntimeFlavor::CurrentThread).then(|| handle.id())
}

/// The key that this thread would wait for without an end if `demand` blocked it now: a body that the same
/// task polls holds it, or tasks of the runtime that the thread drives hold it, or wait for it and came first.
/// That it drives the runtime is known from them: they asked on this thread.
pub(crate) fn blocked_for_ever(locks: &Locks, demand: &Demand) -> Option<String> {
    let (task, runtime) = (task::try_id(), demand.runtime);
    // Beside many others, each look takes time.
    if demand.terms.wait != Wait::Forever || task.is_none() && runtime.is_none() {
        return None;
    }
    let by_body = |hold: Option<&Hold>| task.is_some() && hold.is_some_and(|it| it.task() == task);
    // One that waits may get the lock before its time is over, and can't go on then.
    let by_runtime = |other: &Demand, hold: Option<&Hold>| {
        runtime.is_some()
            && (other.runtime, other.thread) == (runtime, demand.thread)
            && (hold.is_some() || other.terms.wait != Wait::None)
    };
    taken(locks, demand, &|other, hold| by_body(hold) || by_runtime(other, hold))
}

/// The key that a hold of this thread keeps from `demand`. If the thread waits for it, the hold may never end.
pub(crate) fn taken_by_own_thread(locks: &Locks, demand: &Demand) -> Option<String> {
    let own = thread::current().id();
    taken(locks, demand, &|other, hold| hold.is_some() && other.thread == own)
}

/// The first key that those which fit keep from `demand`.
fn taken(
    locks: &Locks,
    demand: &Demand,
    stops: &dyn Fn(&Demand, Option<&Hold>) -> bool,
) -> Option<String> {
    let names = demand.names.all().find(|names| is_taken(locks, names, demand, stops))?;
    Some(names.user_key().to_owned())
}

/// Whether those that stop it keep this key from `demand`.
fn is_taken(
    locks: &Locks,
    names: &Names,
    demand: &Demand,
    stops: &dyn Fn(&Demand, Option<&Hold>) -> bool,
) -> bool {
    let mut beside = 0_u32;
    locks.link().any_demand(names.main(), &mut |other, hold| {
        if !stops(other, hold) {
            return false;
        }
        beside += 1;
        let is_full = demand.kind.limit().is_some_and(|limit| beside >= limit);
        is_full || !other.kind.fits_beside(demand.kind)
    })
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

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
}
