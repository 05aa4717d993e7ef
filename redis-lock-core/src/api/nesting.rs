//! Which keys the code that runs now holds already.
//!
//! A body's holds are noted on the thread while it is polled and taken off afterwards, so the record
//! travels with the future, not with a task: it works in every executor, and two branches of a
//! `join!` do not see each other's holds. A blocking body is one long poll.
//!
//! Inside of a body other tasks may be polled on the same thread: by a runtime that a blocking body
//! runs, or by a `LocalSet`. They wait for the lock as any other task does; Tokio's task ids
//! distinguish them from the body's own code. Tasks of other executors that are run inside of a body are
//! taken for it.

use std::cell::RefCell;

use tokio::task;

use crate::api::caller::Caller;
use crate::api::note::{Note, address};
use crate::domain::clock::Moment;
use crate::{ConfigError, Guard, LockError, LockKey, Locks, Request, Wait};

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
/// `Reentrant`, unless the request asks to join; `InvalidConfig` when it asks for more than the
/// outer hold is.
pub(crate) fn outer(request: &Request, caller: Caller) -> Result<Option<Outer>, LockError> {
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
    let Request { kind, options, .. } = request;
    if note.task != task {
        return Err(LockError::Reentrant { key: key.to_string(), other_task: true });
    }
    if !options.reentrant {
        return Err(LockError::Reentrant { key: key.to_string(), other_task: false });
    }
    let outer = &note.hold;
    if let Some(more) = request.keys.as_slice().iter().find(|key| !holds(&note, key)) {
        let (held, missing) = (key.to_string(), more.to_string());
        return Err(ConfigError::JoinMissesKey { held, missing }.into());
    }
    if !outer.kind().covers(*kind) {
        return Err(ConfigError::JoinOtherKind { key: key.to_string() }.into());
    }
    if options.fenced && outer.fence.is_none() {
        return Err(ConfigError::JoinUnfenced { key: key.to_string() }.into());
    }
    Ok(Some(Outer { locks: locks.clone(), note }))
}

/// Whether nothing else goes on, on this thread, before the request has its lock.
fn would_block_for_ever(request: &Request, caller: Caller) -> bool {
    caller == Caller::Thread && request.options.wait == Wait::Forever
}

impl Outer {
    /// The request for a turn: those who join share the lease, and exclude each other.
    ///
    /// # Errors
    /// `Lost` when there is nothing left to join.
    pub(crate) fn turn(&self, request: &Request) -> Result<Request, LockError> {
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
        self.note.is_joined();
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
