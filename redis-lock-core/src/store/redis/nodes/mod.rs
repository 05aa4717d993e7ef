//! Several nodes that are one arbiter: finds them, and which of them has which keys.

mod asker;
mod cluster;
mod cluster_view;
#[cfg(fuzzing)]
#[path = "../../../../../fuzz/core/nodes.rs"]
pub(super) mod fuzzed;
mod member;
mod node_list;
mod sentinel;
#[cfg(test)]
mod sentinel_tests;
#[cfg(test)]
mod tests;

pub(crate) use asker::NodeAccess;
pub(crate) use cluster::ClusterDirectory;
pub(super) use member::{Member, few_replicas, forgets};
#[cfg(test)]
pub(crate) use node_list::NodeList;
#[cfg(test)]
pub(crate) use node_list::{NamedPrimary, SentinelReport};
pub(crate) use sentinel::SentinelDirectory;
