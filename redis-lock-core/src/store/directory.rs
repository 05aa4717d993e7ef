//! Who has which keys, where an arbiter is more than one node.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::{BoxFuture, Connector};
use crate::domain::error::Fault;

/// A node's name: the address that it announces, as `host:port`.
pub(crate) type NodeName = Arc<str>;

/// Which primary has which slots, as of some moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Map {
    /// Of two maps, the one with the larger epoch is the later; of one epoch, the one that was
    /// asked for later.
    pub(crate) epoch: u64,
    pub(crate) primaries: Vec<Primary>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Primary {
    pub(crate) name: NodeName,
    /// The slots that it has; all of them where there are none to tell apart.
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
    fn pace(&self) -> Duration;

    /// The way to a node.
    fn connector(&self, node: &NodeName) -> Arc<dyn Connector>;
}

/// A command that was certainly not executed where it was sent, and who is to be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Redirect {
    /// Another node has the slot.
    Moved { slot: u16, to: NodeName },
    /// Another node has this key, while its slot moves there; to be asked with `ASKING`.
    Ask { to: NodeName },
}
