//! What threads wait for each other with, in the primitives that `tests/threads` tries.
//!
//! There these names stand for the types of a scheduler, which tries many orders of the threads' steps.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use std::thread;

pub(crate) use futures_util::task::AtomicWaker;
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::yield_now;

/// A mutex that is used on after a thread has panicked with it: what it guards is changed in steps that leave it
/// whole.
#[derive(Debug, Default)]
pub(crate) struct NonPoisonMutex<T>(Mutex<T>);

impl<T> NonPoisonMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.try_lock().is_err()
    }
}
