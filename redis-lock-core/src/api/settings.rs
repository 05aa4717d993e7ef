//! The defaults of all requests of a manager.

use std::sync::Arc;
use std::time::Duration;

use crate::Wait;
use crate::domain::demand::InCommon;
use crate::domain::status::Scripting;

/// The defaults of all requests of a `Locks`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) label: Arc<str>,
    pub(crate) outage: Duration,
    pub(crate) linger: Option<Duration>,
    pub(crate) margin: Option<Duration>,
    /// How many calls may wait for one key.
    pub(crate) max_waiters: Option<usize>,
    /// Whether there is no server.
    pub(crate) in_memory: bool,
    /// The address of the server for messages, without secrets.
    pub(crate) server: String,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) scripting: Scripting,
}

impl Settings {
    /// What all demands have in common.
    pub(crate) fn in_common(&self) -> InCommon<'_> {
        InCommon { namespace: &self.namespace, label: &self.label, timeout: self.command_timeout() }
    }

    /// How long a command may take.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout.unwrap_or(Duration::from_secs(2))
    }
}
