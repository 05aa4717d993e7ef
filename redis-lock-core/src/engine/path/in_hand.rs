//! Outcomes that were taken from a queue and have not been handed to their machines yet.
//!
//! The reader takes them out under the lock of the path, and hands them over after it has unlocked it.
//! Meanwhile they are in no table and no queue. They are counted, so that a shutdown waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts such outcomes.
#[derive(Clone, Debug, Default)]
pub(super) struct InHandCount(Arc<AtomicUsize>);

impl InHandCount {
    pub(super) fn take(&self) -> InHand {
        self.0.fetch_add(1, Ordering::AcqRel);
        InHand(Some(Arc::clone(&self.0)))
    }

    /// Whether this is what counts an outcome here.
    pub(super) fn counts(&self, hand: &InHand) -> bool {
        hand.0.as_ref().is_some_and(|count| Arc::ptr_eq(count, &self.0))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// Counts as one such outcome until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct InHand(Option<Arc<AtomicUsize>>);

impl InHand {
    /// Whether it counts as nothing, as the default does.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
