//! Reads what a node of a cluster says about all nodes, and chooses among what several say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use redis::{Cmd, Value};

use crate::domain::fault::Fault;
use crate::store::redis::address::Address;
use crate::store::redis::decode::{self, text};
use crate::store::redis::dialect::words;
use crate::store::redis::probe::field as field_of;

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
pub(super) fn question() -> [Cmd; 2] {
    [words(["CLUSTER", "SLOTS"]), words(["CLUSTER", "INFO"])]
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

/// The view to use. `known` are the ids of the nodes in the last view.
///
/// An address may belong to a node of another cluster by now. Views that have no node in common
/// describe different clusters. The known cluster is used, or, if no view describes it, the cluster
/// that most views describe. Of one cluster the view with the highest epoch is the newest. A slot that
/// moves to the node with the highest epoch leaves the epoch as it is. So of equal epochs the view of
/// most nodes is used, then the view that covers most slots.
pub(super) fn choose<'a>(
    views: &'a [ClusterView],
    known: &BTreeSet<String>,
) -> Option<&'a ClusterView> {
    let clusters = clusters(views);
    let rank = |view: &ClusterView| {
        let is_known = known.is_empty() || touches(view, known);
        let votes = clusters.iter().find(|cluster| touches(view, &cluster.ids));
        (
            is_known,
            votes.map_or(0, |cluster| cluster.votes),
            view.epoch,
            view.is_healthy,
            peers(views, view).filter(|peer| owners(peer) == owners(view)).count(),
            view.covered(),
        )
    };
    // The first of equally good views.
    views.iter().rev().max_by_key(|view| rank(view))
}

/// Whether most nodes of the chosen view's cluster and epoch report that the cluster works. A node
/// that is cut off keeps reporting that it does not.
pub(super) fn is_healthy(views: &[ClusterView], chosen: &ClusterView) -> bool {
    let ids = chosen.ids().map(Into::into).collect();
    let is_peer = |view: &&ClusterView| view.epoch == chosen.epoch && touches(view, &ids);
    let same = || views.iter().filter(is_peer);
    same().filter(|view| view.is_healthy).count() * 2 > same().count()
}

/// Whether another view is as good as the chosen one, and says something else.
pub(super) fn is_disputed(views: &[ClusterView], chosen: &ClusterView) -> bool {
    let ids = chosen.ids().map(Into::into).collect();
    let mut peers = peers(views, chosen).filter(|view| touches(view, &ids));
    peers.any(|view| owners(view) != owners(chosen))
}

/// The views that have missed no more than this one, as far as their epochs say. A node that says
/// that the cluster does not work may be cut off from the others.
fn peers<'a>(
    views: &'a [ClusterView],
    of: &ClusterView,
) -> impl Iterator<Item = &'a ClusterView> + use<'a> {
    let rank = (of.epoch, of.is_healthy);
    views.iter().filter(move |view| (view.epoch, view.is_healthy) == rank)
}

/// The slots of each primary, by its id or address.
fn owners(view: &ClusterView) -> BTreeMap<String, &[RangeInclusive<u16>]> {
    let name = |shard: &ClusterShard| {
        let primary = shard.nodes.first()?;
        Some(primary.id.clone().unwrap_or_else(|| primary.address.to_string()))
    };
    view.shards.iter().filter_map(|shard| Some((name(shard)?, &*shard.slots))).collect()
}

/// Whether a view contains one of these nodes. A view without ids may belong to any cluster.
pub(super) fn touches(view: &ClusterView, ids: &BTreeSet<String>) -> bool {
    let mut named = view.ids().peekable();
    named.peek().is_none() || named.any(|id| ids.contains(id))
}

struct Cluster {
    ids: BTreeSet<String>,
    votes: usize,
}

fn clusters(views: &[ClusterView]) -> Vec<Cluster> {
    let mut clusters: Vec<Cluster> = Vec::new();
    for view in views {
        let ids = view.ids().map(Into::into);
        match clusters.iter_mut().find(|cluster| touches(view, &cluster.ids)) {
            Some(cluster) => {
                cluster.ids.extend(ids);
                cluster.votes += 1;
            }
            None => clusters.push(Cluster { ids: ids.collect(), votes: 1 }),
        }
    }
    clusters
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

#[cfg(test)]
mod choice_tests {
    use super::*;

    fn view(epoch: u64, ids: &[&str]) -> ClusterView {
        let shard = |id: &&str| {
            let address = Address::new(*id, 1);
            let nodes = vec![ShardNode { address, id: Some((*id).into()) }];
            ClusterShard { slots: vec![0..=1], nodes }
        };
        ClusterView { epoch, is_healthy: true, shards: ids.iter().map(shard).collect() }
    }

    fn known(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn the_highest_epoch_of_one_cluster_counts() {
        let views = vec![view(3, &["a", "b"]), view(5, &["a", "c"]), view(4, &["a", "b"])];
        assert_eq!(choose(&views, &known(&["a"])), Some(&views[1]));
        assert_eq!(choose(&[], &known(&["a"])), None);
    }

    #[test]
    fn g17_an_address_of_another_cluster_does_not_count_however_late_its_epoch() {
        let views = vec![view(900, &["x", "y"]), view(900, &["x", "y"]), view(3, &["a", "b"])];
        assert_eq!(choose(&views, &known(&["a"])), Some(&views[2]));
    }

    #[test]
    fn g17_when_nobody_tells_of_the_known_cluster_the_one_that_most_tell_of_counts() {
        let views = vec![view(900, &["x"]), view(3, &["a", "b"]), view(4, &["b", "c"])];
        assert_eq!(choose(&views, &known(&["gone"])), Some(&views[2]));
        assert_eq!(choose(&views, &known(&[])), Some(&views[2]));
    }

    #[test]
    fn of_one_epoch_who_is_well_and_who_covers_most_counts() {
        let ill = ClusterView { is_healthy: false, ..view(3, &["a", "b", "c"]) };
        let views = vec![ill, view(3, &["a"]), view(3, &["a", "b"])];
        assert_eq!(choose(&views, &known(&[])), Some(&views[2]));
    }

    #[test]
    fn what_another_cluster_says_of_itself_does_not_count_here() {
        let ill = |ids: &[&str]| ClusterView { is_healthy: false, ..view(3, ids) };
        let views = vec![view(3, &["a", "b"]), ill(&["x", "y"]), ill(&["y", "x"])];
        assert!(is_healthy(&views, &views[0]) && !is_healthy(&views, &views[1]));
    }

    /// Two nodes, of which the first has this number of three slots.
    fn split(first: u16) -> ClusterView {
        let mut view = view(3, &["a", "b"]);
        view.shards[0].slots = vec![0..=first - 1];
        view.shards[1].slots = vec![first..=2];
        view
    }

    #[test]
    fn of_one_epoch_what_most_nodes_say_counts_and_is_disputed() {
        for views in [[split(1), split(2), split(2)], [split(2), split(1), split(2)]] {
            let chosen = choose(&views, &known(&[])).unwrap();
            assert_eq!(chosen, &split(2));
            assert!(is_disputed(&views, chosen));
        }
        let agreed = [split(2), split(2)];
        assert!(!is_disputed(&agreed, &agreed[0]));
    }

    #[test]
    fn who_missed_a_change_or_is_cut_off_or_elsewhere_disputes_nothing() {
        let old = ClusterView { epoch: 2, ..split(1) };
        let cut_off = ClusterView { is_healthy: false, ..split(1) };
        let views = [old.clone(), old, cut_off.clone(), cut_off, view(3, &["x"]), split(2)];
        let chosen = choose(&views, &known(&["a"])).unwrap();
        assert_eq!(chosen, &split(2));
        assert!(!is_disputed(&views, chosen));
    }

    #[test]
    fn another_replica_disputes_nothing() {
        let mut other = split(2);
        let replica = ShardNode { address: Address::new("r", 1), id: Some("r".into()) };
        other.shards[0].nodes.push(replica);
        let views = [split(2), other];
        assert!(!is_disputed(&views, &views[0]));
    }
}
