use std::num::ParseIntError;
use std::time::Duration;

use clap::Args;

/// How a worker reaches the servers.
#[derive(Debug, Clone, Args)]
pub(crate) struct Addresses {
    /// Of the locks that must survive all that happens, and of the others.
    #[arg(long)]
    pub(crate) durable: String,
    #[arg(long)]
    pub(crate) volatile: String,
    /// Of all servers, without network faults, separated by commas.
    #[arg(long)]
    pub(crate) direct: String,
    /// The ports that servers announce, and those of the worker's proxies to them:
    /// `7000=8000,7001=8001`.
    #[arg(long)]
    pub(crate) ports: String,
    /// How many replicas confirm what is to survive.
    #[arg(long)]
    pub(crate) replicas: u32,
    /// Of a quorum: how long a node that has started does not vote.
    #[arg(long, value_parser = millis)]
    pub(crate) rejoin: Duration,
}

fn millis(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_millis)
}
