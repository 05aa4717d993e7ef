//! Wakes the engine's thread for work that others have for it, or for an earlier timer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::domain::clock::Moment;

/// Wakes the engine's thread.
#[derive(Debug, Default)]
pub(crate) struct EngineWaker {
    is_woken: AtomicBool,
    notify: Notify,
    /// When the engine wakes by itself. Timers that are due later need not wake it.
    sleeps_until: AtomicU64,
}

impl EngineWaker {
    pub(crate) fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }

    /// Wakes the engine if it would sleep beyond `due`.
    pub(super) fn wake_by(&self, due: Moment) {
        if due.as_nanos() < self.sleeps_until.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    pub(super) fn sleep_until(&self, due: Moment) {
        self.sleeps_until.store(due.as_nanos(), Ordering::SeqCst);
    }

    pub(super) fn wakes(&self) {
        self.sleeps_until.store(0, Ordering::SeqCst);
        self.is_woken.store(false, Ordering::Release);
    }

    pub(super) async fn woken(&self) {
        self.notify.notified().await;
    }

    #[cfg(test)]
    pub(crate) fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::AcqRel)
    }
}
