//! Which node has which keys, where the arbiter consists of several nodes.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::redirect::NodeName;
use super::{BoxFuture, Connector};
use crate::domain::error::Fault;

/// Which primary had which slots when the nodes were asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Map {
    /// The map with the larger epoch is the newer one. Of two maps with the same epoch, the one
    /// that was asked for later is newer.
    pub(crate) epoch: u64,
    /// Whether every node that was asked says that it serves its slots.
    pub(crate) is_healthy: bool,
    /// Whether nodes contradict each other about who has which slots, so that a part of it may be
    /// over.
    pub(crate) is_disputed: bool,
    pub(crate) primaries: Vec<Primary>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Primary {
    pub(crate) name: NodeName,
    /// The slots that it has: `0..=16383` when the server is no cluster, empty when it is about to
    /// get its first slots.
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

/// Knows the nodes of one arbiter: asks them which of them has which slots, and makes a connector
/// for each.
pub(crate) trait Directory: Send + Sync {
    /// Asks the nodes which of them has which slots now. `known` are the nodes of the last map,
    /// which are asked in addition to the seeds. It is polled on the engine's runtime and limits
    /// its own time.
    fn look(&self, known: Vec<NodeName>) -> BoxFuture<'static, Result<Map, Fault>>;

    /// Completes when a message says that the map may have changed, so that it is read before the
    /// interval is over.
    fn changed(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// How often the map is read when nothing says that it has changed.
    fn look_interval(&self) -> Duration;

    /// The connector of a node.
    fn connector(&self, node: &NodeName) -> Arc<dyn Connector>;
}
