mod builder;

pub use builder::SentinelBuilder;

use std::time::{Duration, Instant};

use redis::Value;

use crate::node::{Node, until_well};

/// For elections, and for sentinels to hear of each other. One whose machine stood still for two seconds
/// does nothing for half a minute.
const READY: Duration = Duration::from_secs(90);

/// After so long without an effect a fail-over was given up: longer than the sentinels' own time limit.
const GIVEN_UP: Duration = Duration::from_secs(8);

/// A primary, its replicas, and the sentinels that replace it: real servers on loopback.
///
/// ```no_run
/// let group = testbed::Sentinel::start();
/// // … locks on group.urls(), group.name() …
/// group.fail_over();
/// let primary = group.primary();
/// group.kill9(primary);
/// group.until_replaced(primary);
/// ```
#[derive(Debug)]
pub struct Sentinel {
    name: String,
    servers: Vec<Node>,
    sentinels: Vec<Node>,
}

impl Sentinel {
    /// A primary, a replica, three sentinels, of any server this machine has.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A group with more to say about it.
    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::default()
    }

    /// What the sentinels call the primary.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses of the sentinels, for clients.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Node::url).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Node] {
        &self.sentinels
    }

    /// Those that have data, whatever their role.
    pub fn servers(&self) -> &[Node] {
        &self.servers
    }

    /// The primary, as the sentinels tell, once they agree: one that was cut off says for a moment what
    /// the others have left behind.
    #[track_caller]
    pub fn primary(&self) -> &Node {
        let mut found = None;
        until_well(READY, || {
            let reported = self.reported_port();
            found = self.servers.iter().find(|node| reported == Some(node.port()));
            found
                .is_none()
                .then(|| format!("the sentinels do not agree on a primary: {reported:?}"))
        });
        found.expect("it was found")
    }

    /// A live server that is not the primary.
    #[track_caller]
    pub fn replica(&self) -> &Node {
        let primary = self.primary().port();
        let mut live = self.servers.iter().filter(|node| node.is_live());
        live.find(|node| node.port() != primary).expect("a replica is live")
    }

    /// Asks for a replica in the primary's place, and waits until it is there.
    #[track_caller]
    pub fn fail_over(&self) -> &Node {
        let before = self.primary();
        until_well(READY, || (!self.begins_fail_over()).then(|| "no sentinel begins".to_owned()));
        let mut asked = Instant::now();
        until_well(READY, || {
            let trouble = self.not_replaced(before)?;
            // A sentinel that has not heard of it yet may have turned the new primary back into a
            // replica; then the others give up.
            if asked.elapsed() > GIVEN_UP && self.reported_port() == Some(before.port()) {
                self.begins_fail_over();
                asked = Instant::now();
            }
            Some(trouble)
        });
        self.until_replaced(before)
    }

    /// Asks one sentinel after the other, until one agrees.
    fn begins_fail_over(&self) -> bool {
        let command = format!("SENTINEL FAILOVER {}", self.name);
        self.live_sentinels().any(|node| node.accepts(&command))
    }

    fn not_replaced(&self, before: &Node) -> Option<String> {
        match self.reported_port() {
            Some(port) if port != before.port() => None,
            reported => {
                Some(format!("the sentinels say {reported:?}, and it was {}", before.port()))
            }
        }
    }

    /// Waits until the live sentinels agree on a primary other than this one, and all is well again.
    /// Returns the new one.
    #[track_caller]
    pub fn until_replaced(&self, before: &Node) -> &Node {
        until_well(READY, || self.not_replaced(before));
        self.until_ok();
        self.primary()
    }

    /// Waits until the live sentinels agree, know of each other and of every server, and each live
    /// replica receives data.
    #[track_caller]
    pub fn until_ok(&self) {
        until_well(READY, || self.trouble());
    }

    /// Waits until the replicas have all that the primary has executed so far.
    #[track_caller]
    pub fn until_replicated(&self) {
        let primary = self.primary();
        let sent = primary.offset().expect("a primary counts what it sends");
        until_well(READY, || {
            self.live_replicas(primary).find_map(|node| {
                let behind = !node.is_linked() || node.offset().is_none_or(|got| got < sent);
                behind.then(|| format!("port {} has not got what was sent", node.port()))
            })
        });
    }

    /// Kills a server or a sentinel; the primary only when its replicas have its data.
    #[track_caller]
    pub fn kill9(&self, node: &Node) {
        if node.is_live() && self.reported_port() == Some(node.port()) {
            self.until_replicated();
        }
        node.server().kill9();
    }

    fn trouble(&self) -> Option<String> {
        let Some(primary) = self.reported_port() else {
            return Some("the sentinels don't agree on a primary".into());
        };
        let Some(primary) = self.servers.iter().find(|node| node.port() == primary) else {
            return Some(format!("port {primary} is none of ours"));
        };
        if !primary.is_live() || !primary.is_primary() {
            return Some(format!("port {} does not act as a primary", primary.port()));
        }
        if let Some(replica) = self.live_replicas(primary).find(|node| !node.is_linked()) {
            return Some(format!("port {} is not linked to the primary", replica.port()));
        }
        self.live_sentinels().find_map(|node| self.ignorance(node))
    }

    /// What this sentinel does not know.
    fn ignorance(&self, node: &Node) -> Option<String> {
        let known = |what: &str| -> usize {
            let command = format!("SENTINEL {what} {}", self.name);
            let list: Option<Vec<Value>> = node.try_run(&command);
            list.map_or(0, |list| list.len())
        };
        let (others, replicas) = (known("SENTINELS"), known("REPLICAS"));
        if others + 1 < self.sentinels.len() || replicas + 1 < self.servers.len() {
            let port = node.port();
            return Some(format!("sentinel {port} knows {others} others, {replicas} replicas"));
        }
        let quorum = node.accepts(&format!("SENTINEL CKQUORUM {}", self.name));
        let enough = self.live_sentinels().count() * 2 > self.sentinels.len();
        (enough && !quorum).then(|| format!("sentinel {} sees no quorum", node.port()))
    }

    /// The primary's port, when all live sentinels name the same.
    fn reported_port(&self) -> Option<u16> {
        let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", self.name);
        let mut ports = self.live_sentinels().map(|node| node.try_run::<(String, u16)>(&command));
        let first = ports.next()?;
        ports.all(|port| port == first).then_some(first)?.map(|(_, port)| port)
    }

    fn live_sentinels(&self) -> impl Iterator<Item = &Node> {
        self.sentinels.iter().filter(|node| node.is_live())
    }

    fn live_replicas<'a>(&'a self, primary: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.servers.iter().filter(|node| node.is_live() && node.port() != primary.port())
    }
}
