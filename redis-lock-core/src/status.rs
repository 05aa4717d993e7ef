//! What the server knows of a lock.

use std::time::{Duration, SystemTime};

use crate::Token;

/// One holder of a lock, as the server shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// What names the acquisition; of a foreign client, the value it wrote.
    pub token: Token,
    /// Who it is: by default host and process, and the function for annotated ones.
    pub label: Option<String>,
    /// When it acquired, by the clock of its own machine.
    pub since: Option<SystemTime>,
    /// What is left of its lease by the server's clock; `None` when it never expires.
    pub ttl: Option<Duration>,
    /// Its fencing number, where it asked for one.
    pub fence: Option<u64>,
}

impl Holder {
    pub(crate) fn of(token: Token, ttl: Option<Duration>) -> Self {
        Self { label: token.label().map(Into::into), since: token.since(), token, ttl, fence: None }
    }
}
