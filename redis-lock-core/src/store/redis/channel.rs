//! The channel on which a manager receives messages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The channel on which a manager is subscribed at one server, while it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Channel(Arc<Mutex<Option<Arc<str>>>>);

impl Channel {
    /// The name to put into queue entries; `-` while there is no subscription.
    pub(super) fn name(&self) -> Arc<str> {
        self.current().clone().unwrap_or_else(|| "-".into())
    }

    /// A channel with a subscription.
    #[cfg(test)]
    pub(super) fn listened_at(name: &str) -> Self {
        Self(Arc::new(Mutex::new(Some(name.into()))))
    }

    /// Until the returned value is dropped, queue entries name this channel.
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
