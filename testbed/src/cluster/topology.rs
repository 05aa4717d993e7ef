//! What a node thinks of the cluster, as `CLUSTER NODES` tells it.

use std::ops::RangeInclusive;

use super::Cluster;
use crate::node::Node;

/// The cluster in the eyes of one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Topology {
    members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    id: String,
    /// Whom it follows; `None` for a primary.
    primary: Option<String>,
    failed: bool,
    /// How new its claim to its slots is.
    epoch: String,
    slots: Vec<RangeInclusive<u16>>,
}

impl Topology {
    /// What this node thinks; nothing when it does not answer.
    pub(super) fn of(node: &Node) -> Self {
        let text: String = node.try_run("CLUSTER NODES").unwrap_or_default();
        let mut members: Vec<Member> = text.lines().filter_map(Member::parse).collect();
        members.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Self { members }
    }

    /// The primary that has this slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&str> {
        let owns = |member: &&Member| member.slots.iter().any(|range| range.contains(&slot));
        self.members.iter().find(owns).map(|member| &*member.id)
    }

    pub(super) fn has_slots(&self, id: &str) -> bool {
        self.members.iter().any(|member| member.id == id && !member.slots.is_empty())
    }

    pub(super) fn primary_of(&self, id: &str) -> Option<&str> {
        self.members.iter().find(|member| member.id == id)?.primary.as_deref()
    }

    /// Who has which slots, in one order for all nodes.
    fn shares(&self) -> Vec<(&str, &[RangeInclusive<u16>])> {
        let with_slots = self.members.iter().filter(|member| !member.slots.is_empty());
        with_slots.map(|member| (&*member.id, &*member.slots)).collect()
    }

    /// How new each one's claim is.
    pub(super) fn epochs(&self) -> Vec<(String, String)> {
        self.members.iter().map(|member| (member.id.clone(), member.epoch.clone())).collect()
    }

    fn is_failed(&self, id: &str) -> bool {
        self.members.iter().any(|member| member.id == id && member.failed)
    }
}

impl Member {
    /// `id address flags primary ping pong epoch link slot …`
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let flags: Vec<&str> = words.get(2)?.split(',').collect();
        let primary = words.get(3).filter(|word| **word != "-").map(|word| (*word).to_owned());
        // Slots on their way stand in brackets behind those that are served.
        let slots = words.get(8..)?.iter().filter_map(|word| parse_range(word)).collect();
        let failed = flags.iter().any(|flag| flag.starts_with("fail") || *flag == "handshake");
        let epoch = (*words.get(6)?).to_owned();
        Some(Self { id: words[0].to_owned(), primary, failed, epoch, slots })
    }
}

fn parse_range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Whether the node says that the cluster serves requests.
pub(super) fn is_fine(node: &Node) -> bool {
    let info: Option<String> = node.try_run("CLUSTER INFO");
    info.is_some_and(|info| info.contains("cluster_state:ok"))
}

/// The first thing that is not as it should be among the live nodes.
pub(super) fn trouble(cluster: &Cluster) -> Option<String> {
    let live: Vec<&Node> = cluster.live().collect();
    let views: Vec<Topology> = live.iter().map(|node| Topology::of(node)).collect();
    let first = views.first()?;
    for (node, view) in live.iter().zip(&views) {
        let id = node.id();
        if !is_fine(node) {
            return Some(format!("{id} says that the cluster is down"));
        }
        if view.shares() != first.shares() {
            return Some(format!("{id} thinks that the slots are {:?}", view.shares()));
        }
        if let Some(other) = live.iter().find(|other| view.is_failed(other.id())) {
            return Some(format!("{id} thinks that {} has failed", other.id()));
        }
        // What the node says of itself counts, and all others must have heard it.
        let own = view.primary_of(id);
        if let Some(other) = views.iter().find(|other| other.primary_of(id) != own) {
            return Some(format!("{id} follows {own:?}, and not so for all: {other:?}"));
        }
        if own.is_some() && !node.is_linked() {
            return Some(format!("{id} is not linked to its primary"));
        }
    }
    let owned_by_dead =
        first.shares().into_iter().find(|(id, _)| live.iter().all(|node| node.id() != *id));
    owned_by_dead.map(|(id, _)| format!("{id} has slots and is not live"))
}
