//! Subscribers that are told something by threads which callers need for their answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many may be told something at once. While so many block, others are told nothing.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Audience {
    listening: AtomicUsize,
}

impl Audience {
    /// Tells a subscriber something, unless so many are at it that they seem to block.
    pub(crate) fn tell(&self, say: impl FnOnce()) {
        if self.listening.fetch_add(1, Ordering::Relaxed) < MOST {
            // One that panics has said so itself.
            let _ = catch_unwind(AssertUnwindSafe(say));
        }
        self.listening.fetch_sub(1, Ordering::Relaxed);
    }
}
