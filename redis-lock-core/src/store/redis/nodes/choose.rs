//! Chooses among the views that several nodes have of their cluster.

use std::collections::BTreeSet;

use super::slots::ClusterView;

/// The view to use. `known` are the ids of the nodes in the last view.
///
/// An address may belong to a node of another cluster by now. Views that have no node in common
/// describe different clusters: the known cluster is used, or, when no view describes that any
/// more, the cluster that most views describe. Of one cluster the view with the highest epoch is
/// the newest, and of equal epochs the view that covers most slots is used.
pub(super) fn choose(views: Vec<ClusterView>, known: &BTreeSet<String>) -> Option<ClusterView> {
    let clusters = clusters(&views);
    let rank = |view: &ClusterView| {
        let is_known = known.is_empty() || touches(view, known);
        let votes = clusters.iter().find(|cluster| touches(view, &cluster.ids));
        (
            is_known,
            votes.map_or(0, |cluster| cluster.votes),
            view.epoch,
            view.is_healthy,
            view.covered(),
        )
    };
    // The first of equally good views.
    views.iter().rev().max_by_key(|view| rank(view)).cloned()
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
    use super::super::slots::{ClusterShard, ShardNode};
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
        assert_eq!(choose(views, &known(&["a"])), Some(view(5, &["a", "c"])));
        assert_eq!(choose(vec![], &known(&["a"])), None);
    }

    #[test]
    fn g17_an_address_of_another_cluster_does_not_count_however_late_its_epoch() {
        let views = vec![view(900, &["x", "y"]), view(900, &["x", "y"]), view(3, &["a", "b"])];
        assert_eq!(choose(views, &known(&["a"])), Some(view(3, &["a", "b"])));
    }

    #[test]
    fn g17_when_nobody_tells_of_the_known_cluster_the_one_that_most_tell_of_counts() {
        let views = vec![view(900, &["x"]), view(3, &["a", "b"]), view(4, &["b", "c"])];
        assert_eq!(choose(views.clone(), &known(&["gone"])), Some(view(4, &["b", "c"])));
        assert_eq!(choose(views, &known(&[])), Some(view(4, &["b", "c"])));
    }

    #[test]
    fn of_one_epoch_who_is_well_and_who_covers_most_counts() {
        let ill = ClusterView { is_healthy: false, ..view(3, &["a", "b", "c"]) };
        let views = vec![ill, view(3, &["a"]), view(3, &["a", "b"])];
        assert_eq!(choose(views, &known(&[])), Some(view(3, &["a", "b"])));
    }
}
