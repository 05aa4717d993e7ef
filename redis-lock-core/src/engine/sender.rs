//! The caller that puts a command on a queue, which decides which thread or task reads its answer.

use std::cell::Cell;

use super::runtime::{CurrentRuntime, RuntimeId};

/// Who puts a command on a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    /// A task, or `block_on`, of this runtime.
    Task(RuntimeId),
    /// The engine, a thread without a runtime, or one that blocks its runtime.
    Other,
}

thread_local! {
    static IS_ENGINE: Cell<bool> = const { Cell::new(false) };

    /// How many blocking calls of this thread are going on, one inside another.
    static BLOCKING_CALLS: Cell<u32> = const { Cell::new(0) };
}

/// A blocking call. While it lasts, this thread does not count as a task of its runtime, which
/// perhaps no other thread drives.
pub(crate) struct BlockingCall(());

impl BlockingCall {
    pub(crate) fn begin() -> Self {
        let _ = BLOCKING_CALLS.try_with(|calls| calls.set(calls.get() + 1));
        Self(())
    }
}

impl Drop for BlockingCall {
    fn drop(&mut self) {
        let _ = BLOCKING_CALLS.try_with(|calls| calls.set(calls.get().saturating_sub(1)));
    }
}

impl Sender {
    /// The caller.
    pub(super) fn current() -> Self {
        let is_blocked = BLOCKING_CALLS.try_with(Cell::get).unwrap_or_default() > 0;
        let runtime = if is_blocked { None } else { current_runtime() };
        runtime.map_or(Self::Other, Self::Task)
    }
}

/// Marks this thread as the thread of an engine.
pub(super) fn mark_engine() {
    IS_ENGINE.set(true);
}

/// The runtime that this thread belongs to, if any: a task of it can read answers sooner than the
/// engine's thread. Nothing on the engine's own thread, which reads anyway.
fn current_runtime() -> Option<RuntimeId> {
    if IS_ENGINE.try_with(Cell::get).unwrap_or_default() {
        return None;
    }
    CurrentRuntime::find().map(|runtime| runtime.id())
}
