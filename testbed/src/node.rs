use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, Value};

use crate::binary::ServerBinary;
use crate::clock_shim::ClockShim;
use crate::host::Host;
use crate::proxy::Proxy;
use crate::server::{Mode, Server, ServerBuilder};
use crate::tls::Certificates;

/// One server of several, and the proxy before it if there is one.
#[derive(Debug)]
pub struct Node {
    server: Server,
    proxy: Option<Proxy>,
    id: OnceLock<String>,
}

/// What the nodes of a place have in common.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeSettings {
    pub(crate) binary: Option<ServerBinary>,
    pub(crate) proxied: bool,
    pub(crate) host: Host,
    /// With these, clients and nodes talk to each other over TLS.
    pub(crate) tls: Option<Certificates>,
    pub(crate) clock: Option<ClockShim>,
    pub(crate) arguments: Vec<String>,
}

impl NodeSettings {
    /// Starts a node; with a proxy, `announce` says by which options it tells its address.
    pub(crate) fn start(&self, mode: Mode, announce: impl Fn(u16) -> Vec<String>) -> Node {
        let mut builder = ServerBuilder::default().mode(mode).host(self.host.clone());
        builder = builder.arguments(self.arguments.clone());
        if let Some(binary) = &self.binary {
            builder = builder.binary(binary.clone());
        }
        if let Some(shim) = &self.clock {
            builder = builder.clock(shim);
        }
        if let Some(certificates) = &self.tls {
            builder = builder.tls(certificates);
        }
        // The proxy's port must be known to the server before the server's own port is.
        let proxy = self.proxied.then(|| Proxy::to(0));
        if let Some(proxy) = &proxy {
            proxy.spare_replication();
            builder = builder.arguments(announce(proxy.port()));
        }
        let server = builder.start();
        if let Some(proxy) = &proxy {
            proxy.redirect(server.port());
        }
        Node { server, proxy, id: OnceLock::new() }
    }
}

impl Node {
    /// The process: to be frozen, killed, restarted and asked.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What clients go through; panics where the place was started without proxies.
    ///
    /// Connections of replicas go through it as well, and are spared by its faults.
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("the place was started with proxied()")
    }

    /// The port that clients learn of: the proxy's, where there is one, or that for TLS.
    pub fn port(&self) -> u16 {
        self.proxy.as_ref().map_or_else(|| self.inner_port(), Proxy::port)
    }

    /// The port at which other nodes reach it.
    pub(crate) fn inner_port(&self) -> u16 {
        self.server.tls_port().unwrap_or_else(|| self.server.port())
    }

    /// `redis://127.0.0.1:{port}`, with the port that clients learn of; `rediss` for TLS.
    pub fn url(&self) -> String {
        let scheme = if self.server.tls_port().is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.address())
    }

    /// Where clients learn that it is.
    pub fn address(&self) -> String {
        let host = match &self.proxy {
            Some(_) => Ipv4Addr::LOCALHOST,
            None => self.server.host().address(),
        };
        format!("{host}:{}", self.port())
    }

    /// What the cluster calls it.
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| self.server.run("CLUSTER MYID"))
    }

    /// Neither killed nor frozen.
    pub fn is_live(&self) -> bool {
        self.server.is_live()
    }

    /// Whether it takes itself for a primary.
    pub fn is_primary(&self) -> bool {
        self.server.info("replication", "role").as_deref() == Some("master")
    }

    /// Whether it is a replica that receives all that its primary executes.
    pub(crate) fn is_linked(&self) -> bool {
        self.server.info("replication", "master_link_status").as_deref() == Some("up")
    }

    /// How far the data have come that it has sent or received.
    pub(crate) fn offset(&self) -> Option<u64> {
        let name = if self.is_primary() { "master_repl_offset" } else { "slave_repl_offset" };
        self.server.info("replication", name)?.parse().ok()
    }

    /// Runs a command in words, `None` when the server refuses it.
    pub(crate) fn try_run<T: FromRedisValue>(&self, words: &str) -> Option<T> {
        let mut words = words.split_whitespace();
        let mut command = redis::cmd(words.next()?);
        for word in words {
            command.arg(word);
        }
        self.server.query(&command).ok()
    }

    /// Whether this node answers the command without an error.
    pub(crate) fn accepts(&self, words: &str) -> bool {
        self.try_run::<Value>(words).is_some()
    }
}

/// How much of the time between two looks counts at most: while a virtual machine stands still for
/// half a minute, no server gets the time to recover.
const LONGEST_STEP: Duration = Duration::from_secs(3);

/// Polls until nothing is wrong any more; panics with the last thing that was.
#[track_caller]
pub(crate) fn until_well(patience: Duration, mut trouble: impl FnMut() -> Option<String>) {
    let (mut waited, mut looked) = (Duration::ZERO, Instant::now());
    while let Some(reason) = trouble() {
        assert!(waited < patience, "after {patience:?}: {reason}");
        std::thread::sleep(Duration::from_millis(10));
        waited += looked.elapsed().min(LONGEST_STEP);
        looked = Instant::now();
    }
}
