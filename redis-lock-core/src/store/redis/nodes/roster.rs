//! Who the nodes of one arbiter are, as was last heard.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use super::slots::text;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::status::{NodeInfo, NodeRole, ServerInfo, Topology};
use crate::store::redirect::NodeName;
use crate::store::redis::decode;

/// Shared by whoever asks around and by the connections to each node.
pub(super) struct Roster {
    topology: Topology,
    state: Mutex<State>,
    /// Grows with each change.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// As the nodes count it.
    epoch: u64,
    /// What is added to that, so that the number rises when somebody else is asked by now who has
    /// counted less.
    base: u64,
    nodes: Vec<Listed>,
    /// As the nodes told when they were connected to.
    versions: BTreeMap<NodeName, String>,
}

/// One node on the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub(super) name: NodeName,
    pub(super) id: Option<String>,
    pub(super) role: NodeRole,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl Roster {
    pub(super) fn new(topology: Topology) -> Self {
        Self { topology, state: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// Notes a list, unless there is a later one; returns the epoch of its map.
    pub(super) fn set(&self, epoch: u64, nodes: Vec<Listed>) -> u64 {
        let mut state = self.state();
        let map = state.base.saturating_add(epoch);
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

    /// From here on somebody else counts the epochs.
    pub(super) fn begin_anew(&self) {
        let mut state = self.state();
        state.base = state.base.saturating_add(state.epoch).saturating_add(1);
        state.epoch = 0;
    }

    pub(super) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    pub(super) fn names(&self) -> Vec<NodeName> {
        self.state().nodes.iter().map(|node| Arc::clone(&node.name)).collect()
    }

    pub(super) fn ids(&self) -> BTreeSet<String> {
        self.state().nodes.iter().filter_map(|node| node.id.clone()).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn find<T>(&self, name: &NodeName, read: impl FnOnce(&Listed) -> Option<T>) -> Option<T> {
        self.state().nodes.iter().find(|node| node.name == *name).and_then(read)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One node among those of its roster.
#[derive(Clone)]
pub(in crate::store::redis) struct Site {
    pub(in crate::store::redis) name: NodeName,
    roster: Arc<Roster>,
}

impl Site {
    pub(super) fn new(name: NodeName, roster: Arc<Roster>) -> Self {
        Self { name, roster }
    }

    /// A node of a cluster of which nothing is known.
    #[cfg(test)]
    pub(in crate::store::redis) fn of_cluster(name: &str) -> Self {
        Self::new(name.into(), Arc::new(Roster::new(Topology::Cluster)))
    }

    /// Whether keys may be at other nodes.
    pub(in crate::store::redis) fn has_neighbours(&self) -> bool {
        self.roster.topology == Topology::Cluster
    }

    /// The first slot that it has.
    pub(in crate::store::redis) fn lowest_slot(&self) -> Option<u16> {
        let lowest = |node: &Listed| node.slots.iter().map(|range| *range.start()).min();
        self.roster.find(&self.name, lowest)
    }

    /// Some of its slots, far from each other; none where there are none to tell apart.
    pub(in crate::store::redis) fn some_slots(&self) -> Vec<u16> {
        if !self.has_neighbours() {
            return Vec::new();
        }
        let ends = |node: &Listed| {
            let mut ends: Vec<u16> =
                node.slots.iter().flat_map(|range| [*range.start(), *range.end()]).collect();
            ends.sort_unstable();
            let (first, last) = (*ends.first()?, *ends.last()?);
            let middle = *ends.get(ends.len() / 2)?;
            Some(vec![first, last, middle])
        };
        self.roster.find(&self.name, ends).unwrap_or_default()
    }

    /// Ends when its first slot is another one.
    pub(in crate::store::redis) async fn lowest_slot_moved(&self) {
        let mut changes = self.roster.changes();
        let before = self.lowest_slot();
        while self.lowest_slot() == before {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Whether who answers is whom the roster means: an address may belong to another node by now.
    pub(in crate::store::redis) async fn check(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), Fault> {
        match self.roster.topology {
            Topology::Cluster => {
                let mut question = redis::cmd("CLUSTER");
                question.arg("MYID");
                let answer = ask(connection, question).await?;
                let id = self.roster.find(&self.name, |node| node.id.clone());
                match (id, text(&answer)) {
                    (Some(id), Some(own)) if id != own => Err(self.is_another(&own)),
                    _ => Ok(()),
                }
            }
            Topology::Sentinel => {
                let answer = ask(connection, redis::cmd("ROLE")).await?;
                match role(&answer) {
                    Some(role) if role != "master" => Err(self.is_no_primary(&role)),
                    _ => Ok(()),
                }
            }
            Topology::Memory | Topology::Single => Ok(()),
        }
    }

    fn is_another(&self, id: &str) -> Fault {
        let what = format!(
            "the address {} belongs to another node by now, which calls itself {id}; the nodes are \
             asked again",
            self.name
        );
        Fault::new(FaultClass::Refused, what)
    }

    fn is_no_primary(&self, role: &str) -> Fault {
        let what = format!(
            "the sentinels named {} as the primary, and it says that it is a {role}; they are \
             asked again",
            self.name
        );
        Fault::new(FaultClass::Refused, what)
    }

    /// Notes what its server is.
    pub(in crate::store::redis) fn is_version(&self, version: &str) {
        self.roster.state().versions.insert(Arc::clone(&self.name), version.into());
    }

    /// Adds what is known of all nodes.
    pub(in crate::store::redis) fn describe(&self, info: &mut ServerInfo) {
        let state = self.roster.state();
        info.topology = self.roster.topology;
        info.epoch = Some(state.epoch);
        let node = |node: &Listed| NodeInfo {
            address: node.name.to_string(),
            role: node.role,
            version: state.versions.get(&node.name).cloned(),
        };
        info.nodes = state.nodes.iter().map(node).collect();
    }
}

async fn ask(connection: &mut MultiplexedConnection, cmd: redis::Cmd) -> Result<Value, Fault> {
    // As part of a pipeline, what the server refuses is an answer like others.
    let mut pipeline = redis::pipe();
    pipeline.add_command(cmd);
    let answers = connection.send_packed_commands(&pipeline, 0, 1).await;
    let mut answers = answers.map_err(decode::unreachable)?;
    Ok(answers.pop().unwrap_or(Value::Nil))
}

/// The first word of the answer to `ROLE`.
pub(super) fn role(answer: &Value) -> Option<String> {
    match answer {
        Value::Array(items) => items.first().and_then(text),
        _ => None,
    }
}
