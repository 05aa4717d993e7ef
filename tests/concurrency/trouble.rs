//! What the code of users does that keeps others waiting.

use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;

use redis_locks::Guard;

use crate::support::PATIENCE;

/// Closed until the end of the test.
#[derive(Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    news: Condvar,
}

impl Gate {
    pub(crate) fn pass(&self) {
        let mut is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_open {
            is_open = self.news.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.news.notify_all();
    }
}

/// Ends the test's own threads also when it fails.
pub(crate) struct OpensAtEnd(pub(crate) Arc<Gate>);

#[cfg(feature = "tracing")]
impl OpensAtEnd {
    /// The same gate, to be opened before what is dropped later, and may report its end: a test that fails must
    /// not hang.
    pub(crate) fn early(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Drop for OpensAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// What a waker or a subscriber does.
#[derive(Clone)]
pub(crate) enum Trouble {
    Blocks(Arc<Gate>),
    Panics,
    Asks(Arc<Guard>),
}

/// Runs `part` in another thread, so that the test fails if `part` hangs.
#[track_caller]
pub(crate) fn within<T: Send + 'static>(
    what: &str,
    part: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let _ = tell.send(part());
    });
    hear.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} hangs"))
}
