use anyhow::{Result, bail};
use testbed::{Proxy, Server, ServerBinary};

/// The servers on which the locks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// Single servers.
    Single,
}

impl PlaceKind {
    pub(crate) fn parse(word: &str) -> Result<Self> {
        match word {
            "single" => Ok(Self::Single),
            other => bail!("there is no place `{other}`; there is `single`"),
        }
    }
}

/// The addresses for a worker: of the proxies through which it locks, and of the server itself,
/// which it asks without network faults.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    pub(crate) durable: String,
    pub(crate) volatile: String,
    pub(crate) durable_direct: String,
}

/// A server that keeps its data and one that loses them, with a proxy to each for every worker.
pub(crate) struct Single {
    pub(crate) durable: Server,
    pub(crate) volatile: Server,
    proxies: Vec<[Proxy; 2]>,
}

impl Single {
    pub(crate) fn start(binary: &ServerBinary, workers: usize) -> Self {
        // Written and synced before each answer, so that a crash loses nothing that was granted.
        let durable = Server::builder()
            .binary(binary.clone())
            .arguments(["--appendonly", "yes", "--appendfsync", "always"])
            .start();
        let volatile = Server::builder().binary(binary.clone()).start();
        let proxies =
            (0..workers).map(|_| [Proxy::to(durable.port()), Proxy::to(volatile.port())]).collect();
        Self { durable, volatile, proxies }
    }

    pub(crate) fn workers(&self) -> usize {
        self.proxies.len()
    }

    /// The one or the other, and how it is called.
    pub(crate) fn server(&self, volatile: bool) -> (&Server, &'static str) {
        if volatile { (&self.volatile, "volatile") } else { (&self.durable, "durable") }
    }

    pub(crate) fn proxy(&self, worker: usize, volatile: bool) -> &Proxy {
        &self.proxies[worker][usize::from(volatile)]
    }

    pub(crate) fn addresses(&self, worker: usize) -> Addresses {
        Addresses {
            durable: self.proxy(worker, false).url(),
            volatile: self.proxy(worker, true).url(),
            durable_direct: self.durable.url(),
        }
    }

    /// Every key of a lock that is left, on either server.
    pub(crate) fn locks_left(&self) -> Vec<String> {
        let keys = [&self.durable, &self.volatile].into_iter().flat_map(Server::keys);
        keys.filter(|key| !key.contains(":~")).collect()
    }
}
