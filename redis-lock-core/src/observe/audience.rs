//! Reports to subscribers from threads that callers need for their answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many reports may be under way at once. While so many block, further ones are dropped.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Audience {
    listening: AtomicUsize,
}

impl Audience {
    /// Reports something, unless so many reports are under way that the subscribers seem to block.
    pub(crate) fn tell(&self, say: impl FnOnce()) {
        let one = Listening(&self.listening);
        if one.0.fetch_add(1, Ordering::Relaxed) < MOST {
            // The panic hook has printed the panic.
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
