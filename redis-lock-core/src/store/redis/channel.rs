//! The channel on which a manager receives messages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The plain channel of the manager that listens at this channel, if this one is sharded. Messages
/// there reach all nodes, and can be sent with commands for other slots.
pub(super) fn plain(channel: &str) -> Option<String> {
    let (before, manager) = channel.split_once("}~m:")?;
    let (namespace, slot) = before.rsplit_once('{')?;
    let is_tag = !slot.is_empty() && slot.bytes().all(|byte| byte.is_ascii_digit());
    is_tag.then(|| [namespace, "~m:", manager].concat())
}

/// The channel on which a manager is subscribed at one server, while it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Channel(Arc<Mutex<Option<Arc<str>>>>);

impl Channel {
    /// The name to put into queue entries; `-` while there is no subscription.
    pub(super) fn name(&self) -> Arc<str> {
        self.current().clone().unwrap_or_else(|| "-".into())
    }

    /// The same where messages can't be sent to sharded channels.
    pub(super) fn plain_name(&self) -> Arc<str> {
        let name = self.name();
        plain(&name).map_or(name, Into::into)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sharded_channel_has_a_plain_one_beside_it() {
        assert_eq!(plain("lock:{1234}~m:a1b2").as_deref(), Some("lock:~m:a1b2"));
        assert_eq!(plain("{1234}~m:a1b2").as_deref(), Some("~m:a1b2"));
        for other in ["lock:~m:a1b2", "~m:a1b2", "-", "{x}:~m:a1b2", "{x}~m:a1b2", "{}~m:a1b2"] {
            assert_eq!(plain(other), None, "{other}");
        }
        assert_eq!(&*Channel::listened_at("{7}~m:a").plain_name(), "~m:a");
        assert_eq!(&*Channel::default().plain_name(), "-");
    }
}
