//! Puts a thread to sleep that waits for a future.

use std::task::Wake;
use std::time::Duration;

use crate::sync::{Arc, AtomicBool, Ordering, thread};

/// Puts a thread to sleep until it is woken.
pub(super) struct Parker {
    thread: thread::Thread,
    /// Code that runs on this thread in between may use up what `unpark` leaves.
    is_woken: AtomicBool,
}

impl Parker {
    /// For the thread that calls.
    pub(super) fn new() -> Self {
        Self { thread: thread::current(), is_woken: AtomicBool::new(false) }
    }

    /// Sleeps until it is woken or `limit` has passed. May return early.
    pub(super) fn park(&self, limit: Option<Duration>) {
        if !self.is_woken.swap(false, Ordering::SeqCst) {
            match limit {
                Some(limit) => thread::park_timeout(limit),
                None => thread::park(),
            }
            // The caller looks at what it waits for after this, so no wake-up is lost.
            self.is_woken.swap(false, Ordering::SeqCst);
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}
