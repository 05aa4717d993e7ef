//! The defaults of all requests of a manager.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::demand::{InCommon, check_rejoin};
use crate::domain::status::Scripting;
use crate::{ConfigError, Wait};

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
    /// Of a quorum, how long a node that has started does not vote.
    pub(crate) rejoin: Option<Duration>,
}

impl Settings {
    /// What all demands have in common.
    pub(crate) fn in_common(&self) -> InCommon<'_> {
        InCommon {
            namespace: &self.namespace,
            label: &self.label,
            timeout: self.command_timeout(),
            rejoin: self.rejoin,
        }
    }

    /// The settings for a quorum, if it can offer what they ask for.
    pub(crate) fn on_quorum(&mut self, rejoin: Duration, replicas: u32) -> Result<(), ConfigError> {
        let no = |what, why| Err(ConfigError::NotOnQuorum { what, why });
        if replicas > 0 {
            return no("replicas", "its nodes are independent; leave `replicas` out");
        }
        if self.scripting == Scripting::Never {
            return no("locks without scripts", "its nodes need the rights `+eval +evalsha`");
        }
        check_rejoin(self.ttl, self.margin, rejoin)?;
        (self.rejoin, self.linger) = (Some(rejoin), None);
        Ok(())
    }

    /// How long a command may take.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout.unwrap_or(Duration::from_secs(2))
    }
}
