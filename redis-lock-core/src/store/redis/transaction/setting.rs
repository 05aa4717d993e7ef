//! What transactions run with.

use std::sync::Arc;

use super::plan::DecisionTerms;
use super::pool::Pool;
use crate::store::redis::channel::Channel;
use crate::store::redis::dialect::Dialect;

/// What transactions need of their connection.
pub(in crate::store::redis) struct Setting {
    pub(in crate::store::redis) pool: Arc<Pool>,
    pub(in crate::store::redis) dialect: Dialect,
    pub(in crate::store::redis) channel: Channel,
}

impl Setting {
    pub(super) fn terms(&self) -> DecisionTerms {
        DecisionTerms {
            dialect: self.dialect,
            channel: self.channel.plain_name(),
            listeners: [].into(),
            frugal: false,
        }
    }
}
