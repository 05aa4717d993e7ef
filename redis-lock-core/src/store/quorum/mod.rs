//! A quorum: independent servers, of which a majority has to agree.
//!
//! To the engine it is one place. Its connection asks all nodes and gives the outcome of a majority
//! ([`wire`]); what counts as one is decided without I/O ([`ballot`]).

mod ballot;
mod listen;
mod node;
pub(crate) mod seat;
#[cfg(test)]
mod tests;
mod tokens;
mod wire;

pub(crate) use seat::{Roster, Seat};

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use self::ballot::majority;
use self::node::{Node, keep_linked};
use self::wire::QuorumWire;
use super::link_slot::SlotWatch;
use super::{BoxFuture, Connected, Connector, Hints, Readiness, Watcher};
use crate::domain::clock::Moment;
use crate::domain::error::Fault;

/// How long the first connection waits for the other nodes when there is a majority.
const OTHERS: Duration = Duration::from_millis(500);

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
        let seats = self.roster.seats_of().into_iter();
        let names = self.roster.names();
        let nodes = self.nodes.iter().zip(names).zip(seats).map(|((connector, name), seat)| {
            let (node, slot, wanted) = Node::new(seat);
            tokio::spawn(keep_linked(Arc::clone(connector), name, wanted, slot));
            node
        });
        QuorumWire::new(nodes.collect(), Arc::clone(&self.roster), self.time_limit)
    }

    /// Connects to as many nodes as can be reached, at least a majority.
    async fn connected(self) -> Result<Connected, Fault> {
        let mut wire = self.wire();
        let slots: Arc<[_]> = wire.nodes.iter().map(|node| Arc::clone(node.slot())).collect();
        let watch: Vec<_> = slots.iter().cloned().map(SlotWatch::new).collect();
        let needed = majority(wire.nodes.len());
        let end = Instant::now() + self.time_limit;
        let mut enough_since = None;
        loop {
            wire.take_links(Moment::now());
            let linked = wire.nodes.iter().filter(|node| node.is_linked()).count();
            let settled = |node: &Node| node.is_linked() || node.trouble().is_some();
            let all_settled = wire.nodes.iter().all(settled);
            if let Some(fault) = wire.misuse() {
                return Err(fault);
            }
            if linked >= needed {
                enough_since.get_or_insert_with(Instant::now);
            }
            // Who waits for this connection gives it up at the same limit.
            let others = OTHERS.min(self.time_limit / 4);
            let until = enough_since.map_or(end, |since: Instant| end.min(since + others));
            if all_settled || Instant::now() >= until {
                break;
            }
            let news = poll_fn(|context| poll_news(&watch, context));
            // Without news the time is up.
            let _ = timeout(until.saturating_duration_since(Instant::now()), news).await;
        }
        if wire.nodes.iter().filter(|node| node.is_linked()).count() < needed {
            return Err(wire.no_answer());
        }
        let watcher: Watcher = Arc::new(move || {
            let nodes = slots.iter().cloned().map(SlotWatch::new).collect();
            Ok(Box::new(QuorumWatch { nodes }) as _)
        });
        Ok(Connected { wire: Box::new(wire), watcher: Some(watcher) })
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

/// Watches the connections to all nodes.
struct QuorumWatch {
    nodes: Vec<SlotWatch<Box<dyn super::Wire>>>,
}

impl Readiness for QuorumWatch {
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>> {
        // All are polled, so that each wakes this task.
        let polled = self.nodes.iter().map(|node| node.poll_ready(context, sending));
        polled.fold(Poll::Pending, |all, node| if all.is_pending() { node } else { all })
    }
}

/// Ready when a connection was made, or could not be.
fn poll_news(watch: &[SlotWatch<Box<dyn super::Wire>>], context: &Context<'_>) -> Poll<()> {
    let polled = watch.iter().map(|node| node.poll_news(context));
    polled.fold(Poll::Pending, |all, node| if all.is_pending() { node } else { all })
}
