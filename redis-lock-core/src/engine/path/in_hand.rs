//! Outcomes that were taken off a queue and whose consequences are not drawn yet.
//!
//! Whoever reads takes them out under the lock of the path, and hands them over after that. Until then
//! they are in no table and no queue, but a shutdown must not think that nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there are.
#[derive(Clone, Debug, Default)]
pub(super) struct InHandCount(Arc<AtomicUsize>);

impl InHandCount {
    pub(super) fn take(&self) -> InHand {
        self.0.fetch_add(1, Ordering::AcqRel);
        InHand(Some(Arc::clone(&self.0)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// One of them counts for as long as this is kept.
#[derive(Debug, Default)]
pub(crate) struct InHand(Option<Arc<AtomicUsize>>);

impl InHand {
    /// Whether anything counts on it.
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
