//! A quorum: independent servers, of which a majority has to agree.
//!
//! To the engine it is one place. Its connection asks all nodes and gives the outcome of a majority
//! ([`wire`]); what counts as one is decided without I/O ([`ballot`]).

mod ballot;
mod listen;
mod node;
mod rejoin;
pub(crate) mod seat;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
mod wire;

pub(crate) use seat::{Roster, Seat};

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::ballot::majority;
use self::node::{Node, keep_linked};
use self::wire::QuorumWire;
use super::{BoxFuture, Connected, Connector, Hints, Wire};
use crate::domain::fault::Fault;

/// How long the first connection waits for the other nodes when there is a majority.
const OTHERS: Duration = Duration::from_millis(500);

/// How often the first connection looks what has become of its nodes.
const PAUSE: Duration = Duration::from_millis(2);

/// Knows all nodes of a quorum.
#[derive(Clone)]
pub(crate) struct QuorumConnector {
    nodes: Vec<Arc<dyn Connector>>,
    roster: Arc<Roster>,
    time_limit: Duration,
}

impl QuorumConnector {
    /// The nodes, in the order of their seats.
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Connector>>,
        roster: Arc<Roster>,
        time_limit: Duration,
    ) -> Self {
        Self { nodes, roster, time_limit: time_limit.max(OTHERS) }
    }

    /// Begins to connect to all nodes, on this runtime.
    fn wire(&self) -> QuorumWire {
        let nodes = self.nodes.iter().zip(self.roster.seats_of()).map(|(connector, seat)| {
            let (node, slot, wanted) = Node::new(seat.clone());
            tokio::spawn(keep_linked(Arc::clone(connector), seat, wanted, slot));
            node
        });
        QuorumWire::new(nodes.collect(), Arc::clone(&self.roster), self.time_limit)
    }

    /// Connects to as many nodes as can be reached, at least a majority, and hears whether other clients
    /// lock on a quorum of other nodes.
    async fn connected(self) -> Result<Connected, Fault> {
        let mut wire = self.wire();
        let needed = majority(wire.nodes.len());
        let begin = Instant::now();
        // Who waits for this connection gives it up at the limit.
        let (end, others) = (begin + self.time_limit, OTHERS.min(self.time_limit / 4));
        let mut enough_since = None;
        loop {
            // What becomes of one node is its own concern.
            let _ = wire.fill();
            if let Some(fault) = wire.misuse() {
                return Err(fault);
            }
            if wire.nodes.iter().filter(|node| node.note.agrees.is_some()).count() >= needed {
                enough_since.get_or_insert_with(Instant::now);
            }
            let until = match enough_since {
                None => end,
                Some(_) if wire.sees_another_card() => begin + self.time_limit * 3 / 4,
                Some(since) => end.min(since + others),
            };
            let settled = |node: &Node| node.note.agrees.is_some() || node.trouble().is_some();
            let is_done = wire.nodes.iter().all(settled) && wire.has_compared();
            if is_done || Instant::now() >= until {
                break;
            }
            sleep(PAUSE).await;
        }
        if wire.nodes.iter().filter(|node| node.is_linked()).count() < needed {
            return Err(wire.no_answer());
        }
        Ok(Box::new(wire))
    }
}

impl Connector for QuorumConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>> {
        Box::pin(self.clone().connected())
    }

    fn listen(&self, hints: Hints) -> BoxFuture<'static, Fault> {
        Box::pin(listen::listen(self.nodes.clone(), Arc::clone(&self.roster), hints))
    }
}
