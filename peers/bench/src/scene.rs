//! The servers and runtimes that a measurement uses.

use std::cell::OnceCell;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::{Certificates, Cluster, Server, eventually};
use tokio::runtime::Runtime;

use crate::processors::Apart;

/// A lease so long that it runs out only after a crash.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// One server, and how much time there is.
pub(crate) struct Scene<'a> {
    pub(crate) server: &'a Server,
    pub(crate) quick: bool,
    cluster: OnceCell<Cluster>,
    quorum: OnceCell<Vec<Server>>,
    replica: OnceCell<Server>,
    over_tls: OnceCell<(Server, Vec<u8>)>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(server: &'a Server, quick: bool) -> Self {
        Self {
            server,
            quick,
            cluster: OnceCell::new(),
            quorum: OnceCell::new(),
            replica: OnceCell::new(),
            over_tls: OnceCell::new(),
        }
    }

    /// Three nodes of the same program, started for the first work that wants them.
    pub(crate) fn cluster(&self) -> &Cluster {
        let start = || Cluster::builder().binary(self.server.binary().clone()).replicas(0).start();
        self.cluster.get_or_init(start)
    }

    /// The nodes in one URL.
    pub(crate) fn cluster_url(&self) -> String {
        format!("redis-cluster://{}", self.cluster().urls().join(",").replace("redis://", ""))
    }

    /// Three independent servers of the same program, started for the first work that wants them.
    pub(crate) fn quorum(&self) -> &[Server] {
        let start = |_| Server::builder().binary(self.server.binary().clone()).start();
        self.quorum.get_or_init(|| (0..3).map(start).collect())
    }

    /// These three in one URL.
    pub(crate) fn quorum_url(&self) -> String {
        let hosts: Vec<_> =
            self.quorum().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-quorum://{}", hosts.join(","))
    }

    /// The server, which has a replica from now on.
    pub(crate) fn replicated_url(&self) -> String {
        self.replica.get_or_init(|| {
            let replica = Server::builder().binary(self.server.binary().clone()).start();
            replica.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", self.server.port()));
            let is_linked =
                || replica.info("replication", "master_link_status").as_deref() == Some("up");
            eventually(Duration::from_secs(20), "the replica is linked", is_linked);
            replica
        });
        self.server.url()
    }

    /// The port of a server over TLS, and the certificate of its authority.
    pub(crate) fn tls(&self) -> Result<(u16, Vec<u8>)> {
        if self.over_tls.get().is_none() {
            ensure!(self.server.binary().speaks_tls(), "this server was built without TLS");
            let certificates = Certificates::new().context("there is no `openssl` program")?;
            let authority = std::fs::read(certificates.authority_file())?;
            let builder = Server::builder().binary(self.server.binary().clone());
            let _ = self.over_tls.set((builder.tls(&certificates).start(), authority));
        }
        let (server, authority) = self.over_tls.get().context("it was started above")?;
        Ok((server.tls_port().context("it speaks TLS")?, authority.clone()))
    }

    /// How long to measure: a publishable figure takes longer than a first look.
    pub(crate) fn lasting(&self, full: u64, quick: u64) -> Duration {
        Duration::from_millis(if self.quick { quick } else { full })
    }

    pub(crate) fn times(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// How many commands a server has carried out for locks, those of scripts included. Not this
    /// question, and no `PING`: a client that is connected sends one now and then whenever its
    /// connection is silent, also when it has no lock at all.
    pub(crate) fn commands(server: &Server) -> f64 {
        let is_beside = |name: &str| {
            let name = name.split('|').next();
            matches!(name, Some("auth" | "client" | "info" | "ping"))
        };
        let counts = server.command_counts().into_iter();
        counts.filter(|(name, _)| !is_beside(name)).map(|(_, count)| count as f64).sum()
    }

    /// Gives the servers that were started until now, and the client, processors of their own.
    pub(crate) fn apart(&self) -> Result<Option<Apart>> {
        let nodes =
            self.cluster.get().into_iter().flat_map(Cluster::nodes).map(|node| node.server().pid());
        let beside = self.over_tls.get().map(|(server, _)| server);
        let quorum = self.quorum.get().into_iter().flatten();
        let servers = [Some(self.server), self.replica.get(), beside].into_iter().flatten();
        Apart::begin(servers.chain(quorum).map(Server::pid).chain(nodes))
    }

    /// Removes everything that the last measurement left on the server.
    pub(crate) fn clear(&self) {
        self.server.run::<()>("FLUSHALL");
        self.cluster.get().into_iter().for_each(Cluster::flush);
        self.quorum.get().into_iter().flatten().for_each(|node| node.run::<()>("FLUSHALL"));
    }
}

/// The runtime of every measurement and every child: two workers.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("a runtime can't be built")
}

/// A runtime whose only thread is the one that calls `block_on`.
pub(crate) fn current_thread() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("a runtime can't be built")
}

/// Runs it on one of the runtime's workers: the thread that calls is none of them, and would have
/// to be woken by them.
pub(crate) fn on_worker<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    runtime.block_on(async { tokio::spawn(work).await.context("a measurement panicked")? })
}

/// Ends a runtime, without patience for what a library has left running on it.
pub(crate) fn end(runtime: Runtime) {
    runtime.shutdown_timeout(Duration::from_secs(2));
}
