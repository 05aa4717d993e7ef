//! Whether a thread waits for what it asks.

use std::cell::Cell;

thread_local! {
    /// How many blocking calls of this thread are going on, one inside another.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// A blocking call: what this thread asks for meanwhile, it waits for.
pub(crate) struct BlockingCall(());

impl BlockingCall {
    pub(crate) fn begin() -> Self {
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
        Self(())
    }
}

impl Drop for BlockingCall {
    fn drop(&mut self) {
        let _ = CALLS.try_with(|calls| calls.set(calls.get().saturating_sub(1)));
    }
}

/// Whether this thread is in a blocking call.
pub(super) fn is_blocking() -> bool {
    CALLS.try_with(Cell::get).unwrap_or_default() > 0
}
