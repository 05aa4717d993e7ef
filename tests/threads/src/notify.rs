//! Types of other crates that wake tasks, in the scheduler's terms.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use shuttle::sync::Mutex;

/// As that of `futures`.
#[derive(Debug, Default)]
pub struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub fn register(&self, waker: &Waker) {
        *self.0.lock().unwrap() = Some(waker.clone());
    }

    pub fn wake(&self) {
        let waker = self.0.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// As that of `tokio`, for one who waits.
#[derive(Debug, Default)]
pub struct Notify(Mutex<(bool, Option<Waker>)>);

impl Notify {
    pub fn notify_one(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub async fn notified(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if std::mem::take(&mut state.0) {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// What the core's `crate::sync` offers.
pub mod sync {
    pub use shuttle::future::yield_now;
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
    pub use shuttle::thread;

    pub use super::{AtomicWaker, Notify};
}
