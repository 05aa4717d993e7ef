//! The caller's runtime, on which a task can read answers.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::runtime;

#[cfg(test)]
use crate::domain::env::simulated;

/// Whether a runtime is tried now, or one has turned out to be without I/O. Then it stays so.
static IS_TRIED: AtomicBool = AtomicBool::new(false);

/// Names a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuntimeId {
    Tokio(runtime::Id),
    #[cfg(test)]
    Simulated(u32),
}

/// The runtime that a thread belongs to.
pub(super) enum CurrentRuntime {
    Tokio(runtime::Handle),
    #[cfg(test)]
    Simulated(u32),
}

impl CurrentRuntime {
    pub(super) fn find() -> Option<Self> {
        #[cfg(test)]
        if let Some(number) = simulated::runtime() {
            return Some(Self::Simulated(number));
        }
        runtime::Handle::try_current().ok().map(Self::Tokio)
    }

    pub(super) fn id(&self) -> RuntimeId {
        match self {
            Self::Tokio(handle) => RuntimeId::Tokio(handle.id()),
            #[cfg(test)]
            Self::Simulated(number) => RuntimeId::Simulated(*number),
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Tokio(handle) => drop(handle.spawn(task)),
            #[cfg(test)]
            Self::Simulated(number) => simulated::spawn(*number, task),
        }
    }
}

impl RuntimeId {
    /// The runtime of the calling task or `block_on`, if it can read answers sooner than the engine's thread.
    /// `None` for the engine, for a thread without a runtime, and for a thread that blocks its runtime.
    pub(super) fn of_caller() -> Option<Self> {
        let is_blocked = BLOCKING_CALLS.try_with(Cell::get).unwrap_or_default() > 0;
        if is_blocked { None } else { CurrentRuntime::find().map(|runtime| runtime.id()) }
    }

    /// Whether a task may watch a socket there. Where a panic ends the program, no task does.
    pub(super) fn can_watch(self) -> bool {
        match self {
            Self::Tokio(_) => !cfg!(panic = "abort") && !IS_TRIED.load(Ordering::Acquire),
            #[cfg(test)]
            Self::Simulated(_) => true,
        }
    }

    /// Has a wire registered with this runtime, which is the current one, by its first poll. On a runtime of
    /// Tokio that was built without I/O that panics, and Tokio has no other way to tell. So after the first
    /// such panic no other runtime is tried, and while one is tried no other is.
    pub(super) fn try_watch(self, poll: impl FnOnce() -> Poll<io::Result<()>>) -> bool {
        let polled = match self {
            Self::Tokio(_) if IS_TRIED.swap(true, Ordering::AcqRel) => return false,
            Self::Tokio(_) => {
                let Ok(polled) = catch_unwind(AssertUnwindSafe(poll)) else { return false };
                IS_TRIED.store(false, Ordering::Release);
                polled
            }
            #[cfg(test)]
            Self::Simulated(_) => poll(),
        };
        !matches!(polled, Poll::Ready(Err(_)))
    }
}

#[cfg(test)]
impl From<runtime::Id> for RuntimeId {
    fn from(id: runtime::Id) -> Self {
        Self::Tokio(id)
    }
}

thread_local! {

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
