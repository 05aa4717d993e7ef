use std::time::Duration;

use super::Sentinel;
use crate::binary::ServerBinary;
use crate::host::Host;
use crate::island::Island;
use crate::node::{Node, NodeSettings};
use crate::server::Mode;
use crate::tls::Certificates;

/// Sentinels that look at replicas ten times as often as usual, and that do nothing for 3 seconds instead
/// of 30 after their machine stood still. Before Redis 7 they are as slow as they are.
const BRISK: &str = "SENTINEL DEBUG info-period 1000 publish-period 500 tilt-period 3000";

/// How to start a [`Sentinel`] group.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before start()"]
pub struct SentinelBuilder {
    nodes: NodeSettings,
    name: String,
    replicas: usize,
    sentinels: usize,
    down_after: Duration,
    /// Of the first server, if it is elsewhere than all others.
    apart: Option<Host>,
}

impl Default for SentinelBuilder {
    fn default() -> Self {
        Self {
            nodes: NodeSettings::default(),
            name: "mymaster".into(),
            replicas: 1,
            sentinels: 3,
            down_after: Duration::from_millis(1_500),
            apart: None,
        }
    }
}

impl SentinelBuilder {
    /// This program, not just any.
    pub fn binary(mut self, binary: ServerBinary) -> Self {
        self.nodes.binary = Some(binary);
        self
    }

    /// What the sentinels call the primary: `mymaster` at first.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// How many replicas the primary has: 1 at first.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// How many sentinels there are: 3 at first. More than half of them must agree.
    pub fn sentinels(mut self, count: usize) -> Self {
        assert!(count > 0, "at least one sentinel must keep watch");
        self.sentinels = count;
        self
    }

    /// After which silence a sentinel takes a server for dead: 1.5 s at first. With less, two servers
    /// of a slow machine replace each other in turns.
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = silence;
        self
    }

    /// With a [`Proxy`](crate::Proxy) before each server and each sentinel.
    ///
    /// The sentinels know the servers by their proxies' addresses, since these are what they tell to
    /// clients; so a fault of such a proxy cuts off the sentinels as well. Replication is spared.
    pub fn proxied(mut self) -> Self {
        self.nodes.proxied = true;
        self
    }

    /// With servers and sentinels that speak TLS, with clients and with each other.
    ///
    /// The program must be one for which [`ServerBinary::speaks_tls`] holds.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.nodes.tls = Some(certificates.clone());
        self.arguments(["--tls-replication", "yes"])
    }

    /// With the first server, which is the primary, on an island; all others can only reach it over the
    /// first route.
    pub fn island(mut self, island: &Island) -> Self {
        self.apart = Some(island.host());
        self.nodes.host = island.near_host();
        self
    }

    /// More options for each server, not for sentinels.
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.nodes.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts all, and returns when the sentinels know of everybody. Panics, naming what is wrong,
    /// when they don't.
    pub fn start(self) -> Sentinel {
        let servers: Vec<Node> = (0..=self.replicas).map(|number| self.server(number)).collect();
        let primary = servers[0].address().replace(':', " ");
        for replica in &servers[1..] {
            replica.server().run::<()>(&format!("REPLICAOF {primary}"));
        }
        let sentinels: Vec<Node> = (0..self.sentinels).map(|_| self.sentinel(&primary)).collect();
        for sentinel in &sentinels {
            sentinel.accepts(BRISK);
        }
        let group = Sentinel { name: self.name, servers, sentinels };
        group.until_ok();
        group
    }

    fn server(&self, number: usize) -> Node {
        let mut settings = self.nodes.clone();
        if let Some(apart) = self.apart.clone().filter(|_| number == 0) {
            settings.host = apart;
        }
        settings.arguments.extend(["--repl-ping-replica-period", "1"].map(Into::into));
        settings.start(Mode::Alone, |port| {
            ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", &port.to_string()]
                .map(Into::into)
                .to_vec()
        })
    }

    fn sentinel(&self, primary: &str) -> Node {
        let Self { name, .. } = self;
        let (quorum, silence) = (self.sentinels / 2 + 1, self.down_after.as_millis());
        let mut settings = self.nodes.clone();
        settings.arguments = vec![
            format!("sentinel monitor {name} {primary} {quorum}"),
            format!("sentinel down-after-milliseconds {name} {silence}"),
            format!("sentinel failover-timeout {name} 6000"),
            format!("sentinel parallel-syncs {name} 1"),
        ];
        if settings.tls.is_some() {
            settings.arguments.push("tls-replication yes".into());
        }
        // Sentinels find each other directly; only clients come through the proxy.
        settings.start(Mode::Sentinel, |_| Vec::new())
    }
}
