//! Redis Cluster: asks the nodes which of them has which slots.

use std::collections::BTreeSet;
use std::iter::{once, repeat};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::asker::{Asker, NodeAccess, Target, gather, worst};
use super::cluster_view::{
    self, ClusterShard, ClusterView, choose, is_disputed, is_healthy, touches,
};
use super::member::Member;
use super::node_list::{Listed, NodeList};
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::status::{NodeRole, Topology};
use crate::store::redis::address::Address;
use crate::store::redis::{RedisConnector, Terms};
use crate::store::wire::{Directory, Map, NodeName};
use crate::store::{BoxFuture, Connector};

/// How many nodes are asked at once.
const ASKED: usize = 6;

/// How often the map is read when nothing says that it has changed, give or take a tenth.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Asks the nodes of one cluster.
pub(crate) struct ClusterDirectory {
    seeds: Vec<redis::Client>,
    asker: Asker,
    nodes: Arc<NodeList>,
    /// How often the nodes were asked, so that each time other nodes come first.
    looks: AtomicUsize,
}

impl ClusterDirectory {
    pub(crate) fn new(seeds: Vec<redis::Client>, access: NodeAccess, terms: Terms) -> Self {
        let nodes = Arc::new(NodeList::new(Topology::Cluster));
        let (asker, looks) = (Asker::new(access, terms), AtomicUsize::new(0));
        Self { seeds, asker, nodes, looks }
    }
}

impl Directory for ClusterDirectory {
    fn look(&self, known: Vec<NodeName>) -> BoxFuture<'_, Result<Map, Fault>> {
        Box::pin(self.read(known))
    }

    fn look_interval(&self) -> Duration {
        self.asker.terms.jittered(LOOK_INTERVAL)
    }

    fn connector(&self, node: &NodeName) -> Arc<dyn Connector> {
        let member = Member::new(Arc::clone(node), Arc::clone(&self.nodes));
        Arc::new(RedisConnector::of_node(self.asker.access.clone(), member, &self.asker.terms))
    }
}

impl ClusterDirectory {
    async fn read(&self, known: Vec<NodeName>) -> Result<Map, Fault> {
        let (mut faults, mut views) = (Vec::new(), Vec::new());
        let ids = self.nodes.ids();
        for targets in self.rounds(known) {
            let asking = targets.iter().map(|target| self.ask(target));
            let (mut answered, failed) =
                gather(asking, self.asker.terms.time_limit, |count| count > 0).await;
            faults.extend(failed);
            // A node that was removed from the cluster knows no shards.
            answered.retain(|view| !view.shards.is_empty());
            views.append(&mut answered);
            // Before the view of another cluster is used, all nodes are asked.
            if choose(&views, &ids).is_some_and(|view| ids.is_empty() || touches(view, &ids)) {
                break;
            }
        }
        let Some(view) = choose(&views, &ids) else {
            return Err(worst(faults, "no node of the cluster knows who has which slots"));
        };
        let (is_healthy, is_disputed) = (is_healthy(&views, view), is_disputed(&views, view));
        Ok(self.accept(view.clone(), is_healthy, is_disputed))
    }

    /// All nodes that can be asked, and which of them together: those of the last map, beginning with
    /// another one each time. When none of the first ones answers, the seeds come: where all nodes have
    /// other addresses by now, the read would be given up before all old ones have been tried. No sooner,
    /// because a seed may have another address than the node that it leads to, which would be asked
    /// twice, over a connection that is not kept.
    fn rounds(&self, known: Vec<NodeName>) -> Vec<Vec<Target>> {
        let mut names = self.nodes.names();
        if !names.is_empty() {
            let first = self.looks.fetch_add(1, Ordering::Relaxed) % names.len();
            names.rotate_left(first);
        }
        let nodes = names.iter().chain(&known).filter_map(|name| Address::parse(name));
        let mut seen = BTreeSet::new();
        let mut unseen = |target: &Target| target.address().is_none_or(|it| seen.insert(it));
        let nodes: Vec<_> = nodes.map(Target::Node).filter(&mut unseen).collect();
        let seeds = self.seeds.iter().cloned().map(Box::new).map(Target::Seed);
        let seeds: Vec<_> = seeds.filter(unseen).collect();
        let (first, others) = nodes.split_at(nodes.len().min(ASKED));
        let rounds = first.chunks(ASKED).chain(seeds.chunks(ASKED)).chain(others.chunks(ASKED));
        rounds.map(<[_]>::to_vec).collect()
    }

    async fn ask(&self, target: &Target) -> Result<ClusterView, Fault> {
        // Half of the time limit for connecting, so that time is left for the other nodes.
        let limit = self.asker.terms.time_limit / 2;
        let answers = self.asker.ask(target, &cluster_view::question(), limit).await?;
        let asked = target.address().map(|address| address.host).unwrap_or_default();
        cluster_view::view(&answers, &asked).map_err(is_no_cluster)
    }

    fn accept(&self, view: ClusterView, is_healthy: bool, is_disputed: bool) -> Map {
        let known = self.nodes.ids();
        if !known.is_empty() && !touches(&view, &known) {
            crate::observe::log::another_cluster();
            self.nodes.begin_anew();
        }
        let mut listed = Vec::new();
        for ClusterShard { mut slots, nodes } in view.shards {
            let roles = once(NodeRole::Primary).chain(repeat(NodeRole::Replica));
            for (node, role) in nodes.into_iter().zip(roles) {
                // The primary comes first.
                let slots = std::mem::take(&mut slots);
                listed.push(Listed { name: node.address.name(), id: node.id, role, slots });
            }
        }
        let names: BTreeSet<_> = listed.iter().map(|node| Arc::clone(&node.name)).collect();
        self.asker.keep(|address| names.contains(&address.name()));
        Map { is_healthy, is_disputed, ..self.nodes.set(view.epoch, listed) }
    }
}

/// Explains the reply of a server that is no node of a cluster.
fn is_no_cluster(fault: Fault) -> Fault {
    if !fault.what.contains("cluster support disabled") {
        return fault;
    }
    let what = "this server is no node of a cluster; name it alone, by `url` and redis://host:port";
    Fault { class: FaultClass::Permanent, what: what.into(), ..fault }
}
