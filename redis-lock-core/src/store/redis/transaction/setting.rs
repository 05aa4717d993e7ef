//! What transactions run with.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::plan::DecisionTerms;
use super::pool::Pool;
use crate::store::redis::channel::Channel;
use crate::store::redis::dialect::Dialect;

/// What transactions need of their connection.
pub(in crate::store::redis) struct Setting {
    pub(in crate::store::redis) pool: Arc<Pool>,
    pub(in crate::store::redis) dialect: Dialect,
    pub(in crate::store::redis) channel: Channel,
    /// Whether the server compares a value and sets it in one command.
    pub(in crate::store::redis) has_compare_and_set: bool,
    /// A waiter's process that has asked within this time is taken to be alive.
    pub(in crate::store::redis) alive_for: Duration,
}

impl Setting {
    pub(super) fn terms(&self) -> DecisionTerms {
        DecisionTerms {
            dialect: self.dialect,
            channel: self.channel.plain_name(),
            listeners: [].into(),
            frugal: false,
            whole: false,
            time: None,
            alive_for: self.alive_for,
            reads_several: self.pool.may_read_several.load(Ordering::Relaxed),
        }
    }
}
