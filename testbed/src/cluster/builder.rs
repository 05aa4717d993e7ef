use std::time::Duration;

use super::{Cluster, READY};
use crate::binary::ServerBinary;
use crate::clock_shim::ClockShim;
use crate::host::Host;
use crate::island::Island;
use crate::node::{Node, NodeSettings, until_well};
use crate::server::Mode;
use crate::tls::Certificates;

const SLOTS: usize = 16_384;

/// How to start a [`Cluster`].
#[derive(Clone, Debug)]
#[must_use = "nothing runs before start()"]
pub struct ClusterBuilder {
    nodes: NodeSettings,
    primaries: usize,
    replicas: usize,
    node_timeout: Option<Duration>,
    /// Nodes whose clocks the test moves.
    clocks: Vec<(usize, ClockShim)>,
    /// Of the first node, if it is elsewhere than all others.
    apart: Option<Host>,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            nodes: NodeSettings::default(),
            primaries: 3,
            replicas: 1,
            node_timeout: None,
            clocks: Vec::new(),
            apart: None,
        }
    }
}

impl ClusterBuilder {
    /// This program, not just any.
    pub fn binary(mut self, binary: ServerBinary) -> Self {
        self.nodes.binary = Some(binary);
        self
    }

    /// How many primaries share the slots: 3 at first, and at least 3 where one is to be replaced
    /// after its death.
    pub fn primaries(mut self, count: usize) -> Self {
        assert!(count > 0, "a cluster has a primary");
        self.primaries = count;
        self
    }

    /// How many replicas each primary has: 1 at first.
    pub fn replicas(mut self, each: usize) -> Self {
        self.replicas = each;
        self
    }

    /// After which silence a node counts as failed: 1 s at first, and 3 s where no replica can take its
    /// place. Nodes that a busy machine keeps waiting would only find each other down there.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// Lets the test move the clock of this node, given by its number among [`Cluster::nodes`].
    pub fn clock(mut self, number: usize, shim: &ClockShim) -> Self {
        self.clocks.push((number, shim.clone()));
        self
    }

    /// With the first node, which is a primary, on an island; all others can only reach it over the first
    /// route.
    pub fn island(mut self, island: &Island) -> Self {
        self.apart = Some(island.host());
        self.nodes.host = island.near_host();
        self
    }

    /// With append-only files, synced before each answer: a node that is killed and restarted has
    /// lost nothing that it answered.
    pub fn durable(self) -> Self {
        self.arguments(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// With a [`Proxy`](crate::Proxy) before each node. The nodes announce its port, so that clients
    /// come through it; among themselves they talk directly.
    pub fn proxied(mut self) -> Self {
        self.nodes.proxied = true;
        self
    }

    /// With nodes that speak TLS, with clients and among themselves.
    ///
    /// The program must be one for which [`ServerBinary::speaks_tls`] holds.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.nodes.tls = Some(certificates.clone());
        self.arguments(["--tls-cluster", "yes", "--tls-replication", "yes"])
    }

    /// More options for each node.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.nodes.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts all nodes, and returns when they are a cluster. Panics, naming what is wrong, when
    /// they don't become one.
    pub fn start(self) -> Cluster {
        let count = self.primaries * (1 + self.replicas);
        let cluster = Cluster { nodes: (0..count).map(|number| self.node(number)).collect() };
        self.share_slots(&cluster);
        meet(&cluster);
        for (number, replica) in cluster.nodes[self.primaries..].iter().enumerate() {
            let primary = cluster.nodes[number % self.primaries].id();
            until_well(READY, || {
                let done = replica.accepts(&format!("CLUSTER REPLICATE {primary}"));
                (!done).then(|| format!("no replica of {primary}"))
            });
        }
        cluster.until_ok();
        cluster
    }

    fn node(&self, number: usize) -> Node {
        let mut settings = self.nodes.clone();
        let own_clock = self.clocks.iter().find(|(of, _)| *of == number);
        settings.clock = own_clock.map(|(_, shim)| shim.clone());
        if let Some(apart) = self.apart.clone().filter(|_| number == 0) {
            settings.host = apart;
        }
        let usual = Duration::from_secs(if self.replicas == 0 { 3 } else { 1 });
        let timeout = self.node_timeout.unwrap_or(usual).as_millis().to_string();
        let address = settings.host.address().to_string();
        let own = ["--cluster-node-timeout", &timeout, "--cluster-announce-ip", &address];
        // Replicas stay with the primary that the test gave them.
        let more = ["--repl-ping-replica-period", "1", "--cluster-migration-barrier", "100"];
        settings.arguments.splice(0..0, own.into_iter().chain(more).map(Into::into));
        settings.start(Mode::Node, |port| vec!["--cluster-announce-port".into(), port.to_string()])
    }

    /// Each primary gets its part, and an epoch that differs from the others', so that they need not
    /// sort that out themselves.
    fn share_slots(&self, cluster: &Cluster) {
        for (number, node) in cluster.nodes.iter().enumerate() {
            node.server().run::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
        }
        let slot = |number| u16::try_from(number).expect("slots are few");
        for (number, primary) in cluster.nodes[..self.primaries].iter().enumerate() {
            let first = slot(SLOTS * number / self.primaries);
            let last = slot(SLOTS * (number + 1) / self.primaries - 1);
            primary.server().add_slots(first..=last).expect("no other node has the slots");
        }
    }
}

/// Makes the first node known to all others, and waits until each knows each.
fn meet(cluster: &Cluster) {
    let (first, others) = cluster.nodes.split_first().expect("there is a node");
    let first_host = first.server().host().address();
    for node in others {
        let point = meeting_point(first);
        node.server().run::<()>(&format!("CLUSTER MEET {first_host} {point}"));
    }
    let count = cluster.nodes.len().to_string();
    until_well(READY, || {
        cluster.nodes.iter().find_map(|node| {
            let info: String = node.try_run("CLUSTER INFO")?;
            let line = info.lines().find_map(|line| line.strip_prefix("cluster_known_nodes:"));
            (line != Some(&count)).then(|| format!("a node knows {line:?} of {count}"))
        })
    });
}

/// Its port, and the one on which it listens for other nodes.
fn meeting_point(node: &Node) -> String {
    let port = node.inner_port();
    let bus: Option<(String, u16)> = node.try_run("CONFIG GET cluster-port");
    let bus = bus.map_or(0, |(_, bus)| bus);
    format!("{port} {}", if bus == 0 { port + 10_000 } else { bus })
}
