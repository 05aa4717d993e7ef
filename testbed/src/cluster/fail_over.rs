use std::time::{Duration, Instant};

use super::topology::Topology;
use super::{Cluster, READY};
use crate::node::{Node, until_well};

/// How a replica is made a primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailOver {
    /// With the primary's help, which waits until all is handed over: nothing is lost.
    Plain,
    /// Without the primary, but with the votes of the other primaries.
    Force,
    /// Without asking anybody.
    TakeOver,
}

/// A fail-over that the others did not vote for in this time is given up by the replica.
const ASK_AGAIN: Duration = Duration::from_secs(6);

impl FailOver {
    fn command(self) -> &'static str {
        match self {
            Self::Plain => "CLUSTER FAILOVER",
            Self::Force => "CLUSTER FAILOVER FORCE",
            Self::TakeOver => "CLUSTER FAILOVER TAKEOVER",
        }
    }
}

impl Cluster {
    /// Makes this replica the primary, and waits until all live nodes know.
    #[track_caller]
    pub fn fail_over(&self, replica: &Node, how: FailOver) {
        if how == FailOver::Plain {
            until_well(READY, || {
                (!replica.is_linked()).then(|| "the replica is not linked".into())
            });
        }
        let mut asked: Option<Instant> = None;
        until_well(READY, || {
            if replica.is_primary() {
                return None;
            }
            if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN)
                && replica.accepts(how.command())
            {
                asked = Some(Instant::now());
            }
            Some(format!("{} is no primary after {how:?}", replica.id()))
        });
        self.until_ok();
    }

    /// Waits until another node has the slots of this node, which was killed or frozen before, and
    /// all live nodes know. Returns who.
    #[track_caller]
    pub fn until_replaced(&self, gone: &Node, slot: u16) -> &Node {
        until_well(READY, || {
            let owner = Topology::of(self.any_live());
            (owner.owner(slot) == Some(gone.id())).then(|| format!("{} has its slots", gone.id()))
        });
        self.until_ok();
        self.owner(slot)
    }
}
