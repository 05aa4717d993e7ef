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
        let one = Listening(&self.listening);
        if one.0.fetch_add(1, Ordering::Relaxed) < MOST {
            // One that panics has said so itself.
            let _ = catch_unwind(AssertUnwindSafe(say));
        }
    }
}

/// Counts back also where the payload of a panic panics.
struct Listening<'a>(&'a AtomicUsize);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
