use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, ThreadId};

/// A waker that does nothing but note which threads called it.
#[derive(Debug, Default)]
pub struct WakeLog {
    threads: Mutex<Vec<ThreadId>>,
}

impl WakeLog {
    /// A log whose waker was not called yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A waker that writes this log.
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// How often the waker was called.
    pub fn count(&self) -> usize {
        self.threads().len()
    }

    /// The threads that called the waker, one for each call.
    pub fn threads(&self) -> Vec<ThreadId> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Wake for WakeLog {
    fn wake(self: Arc<Self>) {
        let caller = thread::current().id();
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(caller);
    }
}
