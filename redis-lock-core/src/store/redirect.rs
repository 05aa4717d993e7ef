//! Redirects from one node of a cluster to another.

use std::sync::Arc;

/// A node's name: the address that it announces, as `host:port`.
pub(crate) type NodeName = Arc<str>;

/// Says that a command was certainly not executed, and which node to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Redirect {
    /// Another node has the slot.
    Moved { slot: u16, to: NodeName },
    /// Another node has this key while its slot is being moved there. It has to be asked with
    /// `ASKING`.
    Ask { to: NodeName },
}
