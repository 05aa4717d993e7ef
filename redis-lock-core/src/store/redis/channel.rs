//! Where grants for a manager are published.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a manager hears of grants at one server, as long as it does.
#[derive(Clone, Debug, Default)]
pub(super) struct Channel(Arc<Mutex<Option<Arc<str>>>>);

impl Channel {
    /// Its name for those who queue; `-` when nobody listens.
    pub(super) fn name(&self) -> Arc<str> {
        self.current().clone().unwrap_or_else(|| "-".into())
    }

    /// One on which somebody listens.
    #[cfg(test)]
    pub(super) fn listened_at(name: &str) -> Self {
        Self(Arc::new(Mutex::new(Some(name.into()))))
    }

    /// While what this returns lives, whoever queues says that its manager can be notified.
    pub(super) fn begin(&self, name: Arc<str>) -> ChannelInUse {
        *self.current() = Some(name);
        ChannelInUse(self.clone())
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct ChannelInUse(Channel);

impl Drop for ChannelInUse {
    fn drop(&mut self) {
        *self.0.current() = None;
    }
}
