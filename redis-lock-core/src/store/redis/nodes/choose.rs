//! Chooses among the views that several nodes have of their cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::asker::{NodeAccess, Target};
use super::slots::{ClusterShard, ClusterView};
use crate::store::redis::{Terms, connect};

/// The view to use. `known` are the ids of the nodes in the last view.
///
/// An address may belong to a node of another cluster by now. Views that have no node in common
/// describe different clusters: the known cluster is used, or, when no view describes that any
/// more, the cluster that most views describe. Of one cluster the view with the highest epoch is
/// the newest. A slot that moves to the node whose own epoch is the highest leaves the epoch as it is:
/// of equal epochs the view that most nodes have is used, then the one that covers most slots.
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

/// Whether most nodes of the cluster of the chosen view, with its epoch, say that the cluster works. A
/// node that is cut off from the others goes on saying that it does not.
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

/// The difference between two clocks that is worth a warning, since leases end by these clocks.
const SKEW: Duration = Duration::from_millis(100);

/// How long a fail-over takes in a cluster with this `cluster-node-timeout`, as measured, including
/// elections that don't succeed at once.
pub(super) fn cluster_outage(node_timeout: Duration) -> Duration {
    node_timeout * 17 / 10 + Duration::from_secs(1)
}

/// The same with sentinels, which have to agree first, and to announce the new primary afterwards.
pub(super) fn sentinel_outage(down_after: Duration) -> Duration {
    down_after + Duration::from_secs(2)
}

/// Warns of a lease that is shorter than a fail-over, in which it can't be renewed.
pub(super) fn short_lease(ttl: Duration, outage: Duration) -> Option<String> {
    let least = outage * 3 / 2;
    (ttl < least).then(|| {
        format!(
            "a ttl of {ttl:.1?} is shorter than a fail-over may take ({outage:.1?}), so locks are \
             lost in one although nothing else is: make it {least:.1?} or more, or have the nodes \
             notice failures sooner"
        )
    })
}

/// Warns when the clocks of two nodes differ. `own` and `other` are their offsets from ours;
/// `doubt` is how long the answers took.
pub(super) fn skew(own: i128, other: i128, doubt: Duration, named: &str) -> Option<String> {
    let apart = Duration::from_millis(u64::try_from((own - other).abs()).unwrap_or(u64::MAX));
    (apart > SKEW + doubt).then(|| {
        format!(
            "its clock is {apart:.1?} apart from that of {named}: after a fail-over between the two \
             leases end that much sooner or later, so keep the clocks together"
        )
    })
}

/// Warns when there are fewer replicas than an acquisition has to reach.
pub(in crate::store::redis) fn few_replicas(linked: u32, wanted: u32) -> Option<String> {
    (linked < wanted).then(|| {
        format!(
            "this server has {linked} replicas and {wanted} must have each lock, so none can be \
             acquired"
        )
    })
}

const CHANNEL: &str = "+switch-master";

/// The pause before subscribing at a sentinel again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a subscription is checked with a `PING`: a half-open connection would stay silent for
/// ever.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Completes when this sentinel announces another primary of this name.
pub(super) async fn heard(
    target: Target,
    access: &NodeAccess,
    terms: &Terms,
    name: &str,
    limit: Duration,
) {
    loop {
        if let Some(()) = listen(&target, access, terms, name, limit).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Waits for that announcement; `None` when the connection ends before.
async fn listen(
    target: &Target,
    access: &NodeAccess,
    terms: &Terms,
    name: &str,
    limit: Duration,
) -> Option<()> {
    let subscribing = async {
        let client = target.client(access).await?;
        let mut subscription = connect::subscriber(&client, terms.tls.as_ref()).await?;
        subscription.subscribe(CHANNEL).await?;
        Ok::<_, redis::RedisError>(subscription)
    };
    let subscription = timeout(limit, subscribing).await.ok()?.ok()?;
    let (mut sink, mut messages) = subscription.split();
    loop {
        tokio::select! {
            message = messages.next() => {
                let payload = message?.get_payload::<String>().unwrap_or_default();
                if payload.split(' ').next() == Some(name) {
                    return Some(());
                }
            }
            () = sleep(PING_INTERVAL) => {
                timeout(limit, sink.ping::<redis::Value>()).await.ok()?.ok()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::ShardNode;
    use super::*;
    use crate::store::redis::address::Address;

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

    /// Of two nodes the first one has so many of three slots.
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

#[cfg(test)]
mod warnings_tests {
    use super::*;

    #[test]
    fn a_lease_that_ends_in_a_fail_over_is_warned_of_with_the_figure() {
        let outage = cluster_outage(Duration::from_secs(15));
        assert_eq!(outage, Duration::from_millis(26_500));
        let said = short_lease(Duration::from_secs(30), outage).unwrap();
        assert!(said.contains("26.5s") && said.contains("39.8s"), "{said}");
        assert_eq!(short_lease(Duration::from_secs(40), outage), None);
        let outage = sentinel_outage(Duration::from_millis(500));
        assert!(short_lease(Duration::from_secs(3), outage).is_some());
        assert_eq!(short_lease(Duration::from_secs(4), outage), None);
    }

    #[test]
    fn f11_clocks_that_are_apart_are_warned_of_beyond_what_the_answers_took() {
        let doubt = Duration::from_millis(20);
        assert_eq!(skew(1_000, 1_120, doubt, "b"), None);
        let said = skew(-20_000, 121, doubt, "b").unwrap();
        assert!(said.contains("20.1s") && said.contains('b'), "{said}");
    }

    #[test]
    fn f14_too_few_replicas_are_warned_of() {
        assert_eq!(few_replicas(2, 2), None);
        assert!(few_replicas(1, 2).unwrap().contains("has 1 replicas and 2"));
    }
}
