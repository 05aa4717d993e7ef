mod builder;
mod fail_over;
mod slots;
mod topology;

pub use builder::ClusterBuilder;
pub use fail_over::FailOver;
pub use slots::SlotMove;

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisResult};

use crate::node::{Node, until_well};
use topology::Topology;

/// A time limit for what a cluster does by itself: elections, the join of a node that was away.
const READY: Duration = Duration::from_secs(30);

/// A cluster of real servers on loopback: primaries that share the slots, and replicas of each.
///
/// ```no_run
/// use testbed::{Cluster, FailOver};
/// let cluster = Cluster::start();
/// // … locks on cluster.urls() …
/// let owner = cluster.owner_of("lock:job");
/// cluster.fail_over(cluster.replica_of(owner), FailOver::Plain);
/// cluster.assert_clean();
/// ```
///
/// Every operation returns when all nodes that are live (neither killed nor frozen) know of it.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    /// Three primaries with a replica each, of any server this machine has.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A cluster with other settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// Every node: those that began as primaries come first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The address of each node, for clients.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// The live nodes that are primaries and have slots.
    pub fn primaries(&self) -> Vec<&Node> {
        let topology = self.topology();
        self.live().filter(|node| topology.has_slots(node.id())).collect()
    }

    /// The primary that serves this slot; panics when none does.
    #[track_caller]
    pub fn owner(&self, slot: u16) -> &Node {
        let topology = self.topology();
        let owner = topology.owner(slot).unwrap_or_else(|| panic!("no node has slot {slot}"));
        self.node(owner)
    }

    /// The primary that serves this key.
    #[track_caller]
    pub fn owner_of(&self, key: &str) -> &Node {
        self.owner(self.slot_of(key))
    }

    /// A live replica of this primary; panics when it has none.
    #[track_caller]
    pub fn replica_of(&self, primary: &Node) -> &Node {
        let replicas = self.replicas_of(primary);
        replicas.first().copied().unwrap_or_else(|| panic!("{} has no replica", primary.id()))
    }

    /// The live replicas of this primary.
    pub fn replicas_of(&self, primary: &Node) -> Vec<&Node> {
        let topology = self.topology();
        self.live().filter(|node| topology.primary_of(node.id()) == Some(primary.id())).collect()
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let command = redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).to_owned();
        self.any_live().server().query(&command).expect("a node computes the slot")
    }

    /// A name that begins with `start`, of which `wire` makes a key that this primary serves:
    /// `cluster.name_at(node, "job", |name| format!("lock:{name}"))`.
    pub fn name_at(&self, primary: &Node, start: &str, wire: impl Fn(&str) -> String) -> String {
        let topology = self.topology();
        (0..)
            .map(|number: u32| format!("{start}{number}"))
            .find(|name| topology.owner(self.slot_of(&wire(name))) == Some(primary.id()))
            .expect("the numbers don't end before a name fits")
    }

    /// Runs a command at the primary that serves `key`.
    ///
    /// # Errors
    /// What the server answers, or that it does not.
    pub fn query<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> RedisResult<T> {
        self.owner_of(key).server().query(command)
    }

    /// The string at `key`.
    pub fn get(&self, key: &str) -> Option<String> {
        self.owner_of(key).server().get(key)
    }

    /// Whether there is anything at `key`.
    pub fn exists(&self, key: &str) -> bool {
        self.owner_of(key).server().exists(key)
    }

    /// The milliseconds a key has left; `None` when it is not there, -1 when it has no ttl.
    pub fn pttl(&self, key: &str) -> Option<i64> {
        self.owner_of(key).server().pttl(key)
    }

    /// Every key of every primary, sorted.
    pub fn keys(&self) -> Vec<String> {
        let primaries = self.primaries().into_iter();
        let mut keys: Vec<String> = primaries.flat_map(|node| node.server().keys()).collect();
        keys.sort_unstable();
        keys
    }

    /// Removes every key of every primary.
    pub fn flush(&self) {
        for primary in self.primaries() {
            primary.server().run::<()>("FLUSHALL");
        }
    }

    /// No primary has a lock left, or a key without a ttl: see
    /// [`Server::assert_clean`](crate::Server::assert_clean).
    #[track_caller]
    pub fn assert_clean(&self) {
        for primary in self.primaries() {
            primary.server().assert_clean();
        }
    }

    /// Waits until all live nodes agree: each slot has a live owner, the cluster is fine, each
    /// replica receives data. Panics with what is still wrong after 30 s.
    #[track_caller]
    pub fn until_ok(&self) {
        until_well(READY, || topology::trouble(self));
    }

    /// Waits until all live nodes know the epochs of all. One that counted its next before it has heard
    /// of another's would have the nodes disagree on who has a slot; and one that does not know how new
    /// an owner's claim is believes what the owner before said last.
    #[track_caller]
    fn until_one_epoch(&self) {
        let current = |node: &Node| -> Option<String> {
            let info: String = node.try_run("CLUSTER INFO")?;
            info.lines().find(|line| line.starts_with("cluster_current_epoch")).map(Into::into)
        };
        let known = |node| (current(node), Topology::of(node).epochs());
        until_well(READY, || {
            let views: BTreeSet<_> = self.live().map(known).collect();
            (views.len() > 1).then(|| format!("the nodes count {views:?}"))
        });
    }

    /// Waits until the live replicas of a primary have all that it has executed so far.
    #[track_caller]
    pub fn until_replicated(&self, primary: &Node) {
        let replicas = self.replicas_of(primary);
        let sent = primary.offset().expect("a primary counts what it sends");
        until_well(READY, || {
            replicas.iter().find_map(|node| {
                let behind = !node.is_linked() || node.offset().is_none_or(|got| got < sent);
                behind.then(|| format!("{} has not got what its primary sent", node.id()))
            })
        });
    }

    /// Kills a node, a primary only when its replicas have its data: otherwise no replica would take
    /// its place.
    #[track_caller]
    pub fn kill9(&self, node: &Node) {
        if node.is_live() && node.is_primary() {
            self.until_replicated(node);
        }
        node.server().kill9();
    }

    /// Starts a node again that was killed, and waits until it has joined the others.
    #[track_caller]
    pub fn restart(&self, node: &Node) {
        node.server().restart();
        self.until_ok();
    }

    fn topology(&self) -> Topology {
        Topology::of(self.any_live())
    }

    fn live(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_live())
    }

    /// A node to ask for what all nodes know: one that says that it is connected.
    fn any_live(&self) -> &Node {
        let fine = |node: &&Node| topology::is_fine(node);
        let live = self.live().find(fine).or_else(|| self.live().next());
        live.expect("a node is live")
    }

    fn node(&self, id: &str) -> &Node {
        let found = self.nodes.iter().find(|node| node.id() == id);
        found.expect("the cluster has only its own nodes")
    }
}
