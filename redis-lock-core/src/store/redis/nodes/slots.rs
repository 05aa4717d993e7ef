//! Reads what a node of a cluster says about all nodes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redis::{Pipeline, Value};

use crate::domain::error::Fault;
use crate::store::redis::address::Address;
use crate::store::redis::decode;
use crate::store::redis::probe::{field as field_of, text};

/// One primary with its replicas, as a node reports them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ClusterShard {
    pub(super) slots: Vec<RangeInclusive<u16>>,
    /// The primary first.
    pub(super) nodes: Vec<ShardNode>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ShardNode {
    pub(super) address: Address,
    /// Its id in the cluster; servers before version 4 don't report it.
    pub(super) id: Option<String>,
}

/// The cluster as one node sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ClusterView {
    /// The node's current epoch, which rises with each change of ownership.
    pub(super) epoch: u64,
    /// Whether the node says that the cluster works.
    pub(super) is_healthy: bool,
    pub(super) shards: Vec<ClusterShard>,
}

impl ClusterView {
    /// The ids of all nodes.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.members().filter_map(|member| member.id.as_deref())
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &ShardNode> {
        self.shards.iter().flat_map(|shard| &shard.nodes)
    }

    pub(super) fn covered(&self) -> usize {
        let ranges = self.shards.iter().flat_map(|shard| &shard.slots);
        ranges.map(|range| usize::from(range.end().saturating_sub(*range.start())) + 1).sum()
    }
}

/// The commands that a node is asked.
pub(super) fn question() -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("CLUSTER").arg("SLOTS");
    pipeline.cmd("CLUSTER").arg("INFO");
    pipeline
}

/// Reads the answers of the node at the host `asked`.
pub(super) fn view(answers: &[Value], asked: &str) -> Result<ClusterView, Fault> {
    let ranges = match answers.first() {
        Some(Value::Array(ranges)) => ranges.as_slice(),
        Some(Value::ServerError(error)) => return Err(decode::refusal(error)),
        _ => &[],
    };
    let mut shards: BTreeMap<ShardNode, ClusterShard> = BTreeMap::new();
    for range in ranges.iter().filter_map(|range| read_range(range, asked)) {
        let (slots, nodes) = range;
        let Some(primary) = nodes.first().cloned() else { continue };
        let shard = shards.entry(primary).or_default();
        shard.slots.push(slots);
        shard.nodes = nodes;
    }
    // If the user may not ask for it, the epoch is 0, and the last answer is used.
    let info = answers.get(1).and_then(text).unwrap_or_default();
    let epoch = field_of(&info, "cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
    let epoch = epoch.unwrap_or(0);
    let is_healthy = field_of(&info, "cluster_state").is_none_or(|state| state == "ok");
    Ok(ClusterView { epoch, is_healthy, shards: shards.into_values().collect() })
}

/// `[first, last, primary, replica, …]`, each node as `[host, port, id, …]`.
fn read_range(range: &Value, asked: &str) -> Option<(RangeInclusive<u16>, Vec<ShardNode>)> {
    let Value::Array(items) = range else { return None };
    let [first, last, nodes @ ..] = items.as_slice() else { return None };
    let member = |node: &Value| {
        let Value::Array(items) = node else { return None };
        let host = items.first().and_then(text).unwrap_or_default();
        let port = items.get(1).and_then(number)?;
        let id = items.get(2).and_then(text).filter(|id| !id.is_empty());
        Some(ShardNode { address: Address::new(host, port).seen_from(asked), id })
    };
    // A range without a primary belongs to no node.
    let primary = nodes.first().and_then(member)?;
    let replicas = nodes.iter().skip(1).filter_map(member);
    let nodes = std::iter::once(primary).chain(replicas).collect();
    Some((number(first)?..=number(last)?, nodes))
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => text(value)?.parse().ok(),
    }
}

/// A field of a list of pairs or a map, depending on the version of the protocol.
pub(super) fn field(fields: &Value, name: &str) -> Option<String> {
    let is_name = |key: &Value| text(key).as_deref() == Some(name);
    match fields {
        Value::Array(items) => items
            .chunks(2)
            .find_map(|pair| pair.first().zip(pair.get(1)).filter(|(key, _)| is_name(key)))
            .and_then(|(_, value)| text(value)),
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).and_then(|(_, v)| text(v)),
        _ => None,
    }
}

/// Odd, so that no two slots get the same number.
const SCATTER: u16 = 40_503;

/// Without it, slot 0 would be the first in the order, and slot 0 is often the first to be moved.
const START: u16 = 32_768;

/// The slot of a node's channel: the first of its slots in an order that is the same everywhere, and
/// in which neighbours are far apart.
///
/// A message to a channel whose slot moves may be lost, so the slot should seldom change. The lowest
/// slot would not do: it changes whenever the node gets a lower one, and when nodes give slots away, the
/// lowest ones go first.
pub(super) fn channel_slot(slots: &[RangeInclusive<u16>]) -> Option<u16> {
    slots
        .iter()
        .cloned()
        .flatten()
        .min_by_key(|slot| slot.wrapping_mul(SCATTER).wrapping_add(START))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_when_other_slots_come_and_go() {
        let own = [5_461..=10_922];
        let slot = channel_slot(&own).unwrap();
        let parts = |moved: u16| [5_461..=moved - 1, moved + 1..=10_922];
        for moved in (5_462..10_922).filter(|moved| *moved != slot) {
            assert_eq!(channel_slot(&parts(moved)), Some(slot), "{moved} has gone");
        }
        let changes =
            (0..5_461).filter(|come| channel_slot(&[*come..=*come, 5_461..=10_922]) != Some(slot));
        assert!(changes.count() <= 2, "few come before all others");
        assert_eq!(channel_slot(&[6_000..=10_922]), Some(slot), "the lowest have gone");
    }

    #[test]
    fn it_is_one_of_the_slots_and_none_without_any() {
        assert_eq!(channel_slot(&[]), None);
        assert_eq!(channel_slot(&[7..=7]), Some(7));
        let slot = channel_slot(&[10..=19, 30..=39]).unwrap();
        assert!((10..=19).contains(&slot) || (30..=39).contains(&slot), "{slot}");
    }
}
