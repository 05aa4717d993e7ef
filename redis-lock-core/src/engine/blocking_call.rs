//! Whether a thread is blocked until it has the answers to what it asks.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// How many blocking calls of this thread are going on, one inside another.
    static CALLS: Cell<u32> = const { Cell::new(0) };

    /// The number of this thread, once it has one.
    static NUMBER: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
}

/// While a thread in a blocking call does something for others, it does not wait for what it asks.
pub(crate) struct OnBehalfOfOthers(u32);

impl OnBehalfOfOthers {
    pub(crate) fn begin() -> Self {
        Self(CALLS.try_with(|calls| calls.replace(0)).unwrap_or_default())
    }
}

impl Drop for OnBehalfOfOthers {
    fn drop(&mut self) {
        let _ = CALLS.try_with(|calls| calls.set(self.0));
    }
}

/// A blocking call. While it lasts, this thread waits for the answer to everything that it asks on its
/// own behalf.
pub(crate) struct BlockingCall(());

impl BlockingCall {
    pub(crate) fn begin() -> Self {
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
        Self(())
    }

    /// Whether it is not inside of another blocking call.
    pub(super) fn is_outermost(&self) -> bool {
        CALLS.try_with(Cell::get).unwrap_or_default() <= 1
    }
}

impl Drop for BlockingCall {
    fn drop(&mut self) {
        let _ = CALLS.try_with(|calls| calls.set(calls.get().saturating_sub(1)));
    }
}

/// The number of this thread while it is in a blocking call.
pub(super) fn blocked_thread() -> Option<NonZeroU64> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let is_blocked = CALLS.try_with(Cell::get).unwrap_or_default() > 0;
    let number = || {
        let known = NUMBER.try_with(Cell::get).ok()?;
        known.or_else(|| {
            let made = NonZeroU64::new(LAST.fetch_add(1, Ordering::Relaxed) + 1);
            let _ = NUMBER.try_with(|number| number.set(made));
            made
        })
    };
    if is_blocked { number() } else { None }
}
