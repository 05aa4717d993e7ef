use std::time::Duration;

/// How a worker reaches the servers.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// Of the locks that must survive all that happens, and of the others.
    pub(crate) durable: String,
    pub(crate) volatile: String,
    /// Of all servers, without network faults, separated by commas.
    pub(crate) direct: String,
    /// The ports that servers announce, and those of the worker's proxies to them:
    /// `7000=8000,7001=8001`.
    pub(crate) ports: String,
    /// How many replicas confirm what is to survive.
    pub(crate) replicas: u32,
    /// Of a quorum: how long a node that has started does not vote.
    pub(crate) rejoin: Duration,
}
