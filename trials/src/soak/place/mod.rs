//! The servers on which the locks are, and what can go wrong with them.

mod cluster;
mod quorum;
mod sentinel;
mod single;

use std::time::Duration;

use anyhow::{Result, bail};
use testbed::{Proxy, ServerBinary};

use super::addresses::Addresses;
use super::fault::Fault;
use super::random::Random;
use super::workers::Workers;
use crate::soak::REJOIN;
use cluster::OnCluster;
use quorum::OnQuorum;
use sentinel::OnSentinel;
use single::OnSingle;

/// The servers on which the locks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// One that keeps its data, and one that loses them.
    Single,
    /// 3 + 3 nodes.
    Cluster,
    /// 1 + 1 servers, and 3 sentinels.
    Sentinel,
    /// So many independent servers, which do not vote for this long after a start.
    Quorum { nodes: usize, rejoin: Duration },
}

impl PlaceKind {
    pub(crate) fn parse(word: &str) -> Result<Self> {
        match word {
            "single" => Ok(Self::Single),
            "cluster" => Ok(Self::Cluster),
            "sentinel" => Ok(Self::Sentinel),
            "quorum" => Ok(Self::Quorum { nodes: 3, rejoin: REJOIN }),
            "quorum-of-five" => Ok(Self::Quorum { nodes: 5, rejoin: REJOIN }),
            // Overlaps are to be found here.
            "quorum-without-rejoin" => Ok(Self::Quorum { nodes: 3, rejoin: Duration::ZERO }),
            other => bail!(
                "there is no place `{other}`; there are single, cluster, sentinel, quorum, \
                 quorum-of-five and quorum-without-rejoin"
            ),
        }
    }

    /// Starts the servers, with a way to each of them for every worker.
    pub(crate) fn start(self, binary: &ServerBinary, workers: usize) -> Box<dyn Place> {
        match self {
            Self::Single => Box::new(OnSingle::start(binary, workers)),
            Self::Cluster => Box::new(OnCluster::start(binary, workers)),
            Self::Sentinel => Box::new(OnSentinel::start(binary, workers)),
            Self::Quorum { nodes, rejoin } => {
                Box::new(OnQuorum::start(binary, workers, nodes, rejoin))
            }
        }
    }
}

/// The servers, and a proxy to each of them for every worker.
pub(crate) trait Place {
    fn addresses(&self, worker: usize) -> Addresses;

    /// Whether volatile keys are lost at any time, not only by fail-overs.
    fn loses_always(&self) -> bool;

    /// The nodes that have the data at this time; empty where that never changes.
    fn owners(&self) -> Vec<String>;

    /// The URLs of all servers that may have locks, without a proxy.
    fn servers(&self) -> Vec<String>;

    /// Causes one fault. It is over when this returns.
    fn strike(&self, random: &mut Random, workers: &mut Workers) -> Fault;

    /// Every key of a lock that is left.
    fn locks_left(&self) -> Vec<String>;
}

/// A worker's proxies, one to each of several ports.
fn proxies_to(ports: &[u16], workers: usize) -> Vec<Vec<Proxy>> {
    let ways = |_| ports.iter().map(|port| Proxy::to(*port)).collect();
    (0..workers).map(ways).collect()
}

/// The `ports` of [`Addresses`].
fn port_map(ports: &[u16], proxies: &[Proxy]) -> String {
    let pairs = ports.iter().zip(proxies).map(|(port, proxy)| format!("{port}={}", proxy.port()));
    pairs.collect::<Vec<_>>().join(",")
}

/// Hosts of a URL for several servers.
fn hosts<'a>(proxies: impl IntoIterator<Item = &'a Proxy>) -> String {
    let hosts = proxies.into_iter().map(|proxy| format!("127.0.0.1:{}", proxy.port()));
    hosts.collect::<Vec<_>>().join(",")
}
