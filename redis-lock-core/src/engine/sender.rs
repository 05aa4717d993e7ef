//! The caller that puts a command on a queue, which decides which thread or task reads its answer.

use std::cell::Cell;

use tokio::runtime;

use super::blocking_call::blocked_thread;

/// Who puts a command on a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    /// A task, or `block_on`, of this runtime.
    Task(runtime::Id),
    /// A thread that does nothing else until the answer has come.
    BlockedThread,
    /// The engine, or a thread that does not wait.
    Other,
}

thread_local! {
    static IS_ENGINE: Cell<bool> = const { Cell::new(false) };
}

impl Sender {
    /// The caller.
    pub(super) fn current() -> Self {
        match blocked_thread() {
            Some(_) => Self::BlockedThread,
            None => current_runtime().map_or(Self::Other, Self::Task),
        }
    }
}

/// Marks this thread as the thread of an engine.
pub(super) fn is_engine() {
    IS_ENGINE.set(true);
}

/// The runtime that this thread belongs to, if any: a task of it can read answers sooner than the
/// engine's thread. Nothing on the engine's own thread, which reads anyway.
pub(super) fn current_runtime() -> Option<runtime::Id> {
    if IS_ENGINE.try_with(Cell::get).unwrap_or_default() {
        return None;
    }
    runtime::Handle::try_current().ok().map(|handle| handle.id())
}

/// The runtime whose tasks wait for what this thread asks. A blocked thread waits by itself, and perhaps
/// nobody drives its runtime meanwhile.
pub(super) fn asking_runtime() -> Option<runtime::Id> {
    match Sender::current() {
        Sender::Task(here) => Some(here),
        Sender::BlockedThread | Sender::Other => None,
    }
}
