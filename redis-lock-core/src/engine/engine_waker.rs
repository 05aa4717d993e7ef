//! Wakes the engine's thread.

use crate::domain::clock::Moment;
use crate::sync::{AtomicBool, AtomicU64, Notify, Ordering};

/// Wakes the engine's thread.
#[derive(Debug, Default)]
pub(crate) struct EngineWaker {
    is_woken: AtomicBool,
    notify: Notify,
    /// When the engine wakes without a call. Timers that are due later need not wake it.
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

    /// The engine is about to sleep until `due`, or less long: a timer may have been set before this said
    /// how long, so `latest` is asked afterwards.
    pub(super) fn sleep_until(&self, due: Moment, latest: impl FnOnce() -> Moment) -> Moment {
        self.sleeps_until.store(due.as_nanos(), Ordering::SeqCst);
        due.min(latest())
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
