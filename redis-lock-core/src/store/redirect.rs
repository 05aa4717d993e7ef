//! Being sent from one node to another.

use std::sync::Arc;

/// A node's name: the address that it announces, as `host:port`.
pub(crate) type NodeName = Arc<str>;

/// A command that was certainly not executed where it was sent, and who is to be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Redirect {
    /// Another node has the slot.
    Moved { slot: u16, to: NodeName },
    /// Another node has this key, while its slot moves there; to be asked with `ASKING`.
    Ask { to: NodeName },
}
