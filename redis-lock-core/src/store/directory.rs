//! Who has which keys, where an arbiter is more than one node.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::redirect::NodeName;
use super::{BoxFuture, Connector};
use crate::domain::error::Fault;

/// Which primary has which slots, as of some moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Map {
    /// Of two maps, the one with the larger epoch is the later; of one epoch, the one that was
    /// asked for later.
    pub(crate) epoch: u64,
    /// Whether all who were asked serve their slots, as far as they say.
    pub(crate) is_healthy: bool,
    pub(crate) primaries: Vec<Primary>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Primary {
    pub(crate) name: NodeName,
    /// The slots that it has: `0..=16383` where there are none to tell apart, none where it is about
    /// to get some.
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

/// Knows the nodes of one arbiter: asks them who has what, and how each is reached.
pub(crate) trait Directory: Send + Sync {
    /// Asks around who has which slots now. `known` are nodes that were heard of, beside those it
    /// began with. Polled on the engine's runtime; it bounds its time itself.
    fn look(&self, known: Vec<NodeName>) -> BoxFuture<'static, Result<Map, Fault>>;

    /// Ends when something was heard that makes it worthwhile to look before the time.
    fn changed(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// How long one look holds without a cause for another.
    fn look_interval(&self) -> Duration;

    /// The way to a node.
    fn connector(&self, node: &NodeName) -> Arc<dyn Connector>;
}
