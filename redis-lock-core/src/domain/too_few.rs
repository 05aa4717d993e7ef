//! Errors where too few servers have a lock: replicas, or nodes of a quorum.

use std::fmt;

use crate::Token;

/// An acquisition or a renewal that too few replicas confirmed in time. It does not count, and the
/// lock is released if it was acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "only {got} of the {wanted} required replicas confirmed it in time; check the replicas, or require \
     fewer with `replicas`"
)]
#[non_exhaustive]
pub struct NotReplicated {
    /// How many replicas confirmed it.
    pub got: u32,
    /// How many were asked for.
    pub wanted: u32,
}

/// Too few nodes of a quorum voted for an acquisition, or confirmed a renewal. Its text lists every node in one line.
///
/// ```
/// # fn show(few: &redis_locks::NoQuorum) {
/// println!("{} of {} votes", few.granted, few.needed);
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NoQuorum {
    /// How many nodes voted for it.
    pub granted: u32,
    /// How many votes were needed: a majority of all nodes, whether they can be reached or not.
    pub needed: u32,
    /// What each node said, in the order in which the nodes were named.
    pub nodes: Vec<NodeVote>,
}

/// What one node of a quorum said.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeVote {
    /// Where the node is.
    pub address: String,
    /// What it said.
    pub vote: Vote,
}

/// What a node of a quorum says to an acquisition or a renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Vote {
    /// It voted for it.
    Voted,
    /// Another holder has the lock there.
    #[non_exhaustive]
    Busy {
        /// Who, where the node said so: its label, or the value at the key.
        holder: Option<String>,
    },
    /// The lock to be renewed or released is not there.
    Missing,
    /// No answer came in time, or before the other nodes had decided. A later answer counts from then
    /// on.
    Late,
    /// It started less than [`rejoin`](crate::LocksBuilder::rejoin) ago, and may have forgotten locks.
    Young,
    /// Its clock runs ahead of this process's clock, so it does not vote for [`rejoin`](crate::LocksBuilder::rejoin).
    Clock,
    /// There is no connection to it.
    #[non_exhaustive]
    Unreachable {
        /// Why.
        why: String,
    },
    /// It refused to do it.
    #[non_exhaustive]
    Refused {
        /// Why.
        why: String,
    },
}

impl Vote {
    pub(crate) fn busy(value: Option<&str>) -> Self {
        let named = |value: &str| {
            let token = Token::from_wire(value);
            token.label().unwrap_or_else(|| token.to_string())
        };
        Self::Busy { holder: value.map(named) }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Voted => f.write_str("voted"),
            Self::Busy { holder: None } => f.write_str("busy"),
            Self::Busy { holder: Some(holder) } => write!(f, "busy, held by {holder}"),
            Self::Missing => f.write_str("does not have the lock"),
            Self::Late => f.write_str("late, did not answer in time"),
            Self::Young => f.write_str("young, restarted recently and does not vote yet"),
            Self::Clock => f.write_str("clock, runs fast and does not vote"),
            Self::Unreachable { why } => write!(f, "unreachable: {why}"),
            Self::Refused { why } => write!(f, "refused: {why}"),
        }
    }
}

impl fmt::Display for NodeVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.vote)
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (granted, needed) = (self.granted, self.needed);
        write!(f, "only {granted} of the {needed} required nodes agreed: ")?;
        for (at, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for NoQuorum {}
