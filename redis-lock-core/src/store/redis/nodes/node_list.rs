//! The known nodes of one arbiter.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::SLOTS;
use crate::domain::status::{NodeInfo, NodeRole, ServerInfo, Topology};
use crate::store::redis::address::Address;
use crate::store::wire::{Map, NodeName, Primary};
use crate::sync::NonPoisonMutex;

/// The list of known nodes, shared by the directory and the connections to the nodes.
pub(crate) struct NodeList {
    pub(super) topology: Topology,
    state: NonPoisonMutex<NodeListState>,
    /// Grows with each change.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct NodeListState {
    /// The epoch that the nodes report.
    epoch: u64,
    /// Is added to that, so that the epoch also rises after the nodes were set up anew and count
    /// from the beginning.
    base: u64,
    nodes: Vec<Listed>,
    /// The version of each node that was connected to.
    versions: BTreeMap<NodeName, String>,
    clocks: BTreeMap<NodeName, Clock>,
    /// For nodes to which the last attempt to connect has failed: why.
    troubles: BTreeMap<NodeName, String>,
    /// How long a fail-over may take.
    outage: Option<Duration>,
}

/// One reading of a node's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Milliseconds by which it is ahead of our monotonic one.
    pub(super) ahead: i128,
    /// How long the answer took, and so how inexact the reading is.
    pub(super) doubt: Duration,
}

/// One node in the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) name: NodeName,
    pub(super) id: Option<String>,
    pub(super) role: NodeRole,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl NodeList {
    pub(crate) fn new(topology: Topology) -> Self {
        Self { topology, state: NonPoisonMutex::default(), changes: watch::Sender::new(0) }
    }

    /// Stores a list, unless a newer one is known. Returns its map, which counts as confirmed.
    pub(super) fn set(&self, epoch: u64, nodes: Vec<Listed>) -> Map {
        let primary =
            |node: &Listed| Primary { name: Arc::clone(&node.name), slots: node.slots.clone() };
        let primaries = nodes.iter().filter(|node| node.role == NodeRole::Primary).map(primary);
        let primaries = primaries.collect();
        let mut state = self.state.lock();
        let map = state.base.saturating_add(epoch);
        let map = Map { epoch: map, is_healthy: true, is_disputed: false, primaries };
        if epoch < state.epoch {
            return map;
        }
        let differs = state.nodes != nodes;
        (state.epoch, state.nodes) = (epoch, nodes);
        drop(state);
        if differs {
            self.changes.send_modify(|number| *number += 1);
        }
        map
    }

    /// From now on the nodes count their epochs from the beginning.
    pub(super) fn begin_anew(&self) {
        let mut state = self.state.lock();
        state.base = state.base.saturating_add(state.epoch).saturating_add(1);
        state.epoch = 0;
    }

    pub(super) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    pub(super) fn names(&self) -> Vec<NodeName> {
        self.state.lock().nodes.iter().map(|node| Arc::clone(&node.name)).collect()
    }

    pub(super) fn ids(&self) -> BTreeSet<String> {
        self.state.lock().nodes.iter().filter_map(|node| node.id.clone()).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Stores the version of a server.
    pub(super) fn set_version(&self, name: &NodeName, version: &str) {
        self.state.lock().versions.insert(Arc::clone(name), version.into());
    }

    pub(super) fn was_connected(&self, name: &NodeName) -> bool {
        self.state.lock().versions.contains_key(name)
    }

    /// Notes why a node can't be connected to, or that it was.
    pub(super) fn set_trouble(&self, name: &NodeName, trouble: Option<&str>) {
        let mut state = self.state.lock();
        match trouble {
            Some(what) => drop(state.troubles.insert(Arc::clone(name), what.into())),
            None => drop(state.troubles.remove(name)),
        }
    }

    /// Stores the clock of a node; returns that of another node, for comparison.
    pub(super) fn set_clock(&self, name: &NodeName, clock: Clock) -> Option<(NodeName, Clock)> {
        let mut state = self.state.lock();
        state.clocks.insert(Arc::clone(name), clock);
        let other = state.clocks.iter().find(|(other, _)| *other != name);
        other.map(|(other, clock)| (Arc::clone(other), *clock))
    }

    pub(super) fn outage(&self) -> Option<Duration> {
        self.state.lock().outage
    }

    pub(super) fn set_outage(&self, outage: Duration) {
        self.state.lock().outage = Some(outage);
    }

    /// Adds all known nodes to a description.
    pub(super) fn describe(&self, info: &mut ServerInfo) {
        let state = self.state.lock();
        info.topology = self.topology;
        info.epoch = Some(state.epoch);
        let node = |node: &Listed| NodeInfo {
            address: node.name.to_string(),
            role: node.role,
            version: state.versions.get(&node.name).cloned(),
            trouble: state.troubles.get(&node.name).cloned(),
            votes: true,
        };
        info.nodes = state.nodes.iter().map(node).collect();
    }

    pub(super) fn find<T>(
        &self,
        name: &NodeName,
        read: impl FnOnce(&Listed) -> Option<T>,
    ) -> Option<T> {
        self.state.lock().nodes.iter().find(|node| node.name == *name).and_then(read)
    }
}

/// The answer of one sentinel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SentinelReport {
    pub(crate) epoch: u64,
    pub(crate) primary: Address,
    pub(crate) others: Vec<OtherSentinel>,
    /// How long the primary must be silent before the sentinel considers it down.
    pub(crate) down_after: Option<Duration>,
}

/// A sentinel as another one describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OtherSentinel {
    pub(crate) address: Address,
    /// It does not answer the other one.
    pub(crate) is_down: bool,
}

/// The primary that sentinels name. It may not know that it is the primary, or may be a replica
/// by now.
pub(crate) struct NamedPrimary {
    pub(crate) address: Address,
    epoch: u64,
    /// Most sentinels were set up anew, and count their epochs from the beginning.
    is_anew: bool,
}

impl NamedPrimary {
    /// The result of these answers, given how many sentinels were asked.
    pub(crate) fn of(
        reports: Vec<SentinelReport>,
        asked: usize,
        nodes: &NodeList,
    ) -> Result<Self, Fault> {
        let most = reports.len() * 2 > asked;
        let Some(latest) = latest(reports) else {
            return Err(Fault::new(FaultClass::Refused, "no sentinel answered"));
        };
        let is_anew = latest.epoch < nodes.epoch();
        if is_anew && !most {
            let what = "only sentinels that missed the last failover answer";
            return Err(Fault::new(FaultClass::Refused, what));
        }
        Ok(Self { address: latest.primary, epoch: latest.epoch, is_anew })
    }

    /// It was asked, and does not say that it is none.
    pub(crate) fn accept(self, nodes: &NodeList) -> Map {
        if self.is_anew {
            nodes.begin_anew();
        }
        // The one primary has all slots.
        let (name, slots) = (self.address.name(), vec![0..=SLOTS - 1]);
        nodes.set(self.epoch, vec![Listed { name, id: None, role: NodeRole::Primary, slots }])
    }
}

/// The newest of several reports: the highest epoch, and of equal epochs what most sentinels say.
pub(super) fn latest(reports: Vec<SentinelReport>) -> Option<SentinelReport> {
    let votes =
        |one: &SentinelReport| reports.iter().filter(|other| other.primary == one.primary).count();
    let rank = |one: &&SentinelReport| (one.epoch, votes(one));
    reports.iter().max_by_key(rank).cloned()
}
