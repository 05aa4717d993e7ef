//! The terms on which a lock is wanted.

use std::time::Duration;

use crate::Wait;
use crate::domain::label::Label;

/// The checked options of a request, whatever its key.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LockTerms {
    /// In whole milliseconds; `None` never expires.
    pub(crate) ttl: Option<Duration>,
    /// How much longer the server keeps the key than the guard believes in its lease.
    pub(crate) margin: Duration,
    pub(crate) wait: Wait,
    /// How many calls of the manager may wait for the key.
    pub(crate) max_waiters: Option<usize>,
    pub(crate) renew: bool,
    pub(crate) max_hold: Duration,
    pub(crate) min_hold: Option<Duration>,
    /// For how long after the acquisition it stays known that what the lock was held for was done.
    pub(crate) once: Option<Duration>,
    pub(crate) fenced: bool,
    pub(crate) fair: bool,
    pub(crate) repair_orphan: Option<Duration>,
    pub(crate) label: Label,
    /// How long one command may take.
    pub(crate) timeout: Duration,
    /// In whole milliseconds; with `None` the last release gives the lease back.
    pub(crate) linger: Option<Duration>,
    /// How long an acquisition waits for a server that can't be used, whatever its wait.
    pub(crate) outage: Duration,
}
