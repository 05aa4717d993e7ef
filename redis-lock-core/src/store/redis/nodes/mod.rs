//! Several nodes that are one arbiter: finds them, and which of them has which keys.

mod asker;
mod choose;
mod cluster;
#[cfg(fuzzing)]
#[path = "../../../../fuzzing/nodes.rs"]
pub(super) mod fuzzed;
mod member;
mod node_list;
mod sentinel;
#[cfg(test)]
mod sentinel_tests;
mod slots;
#[cfg(test)]
mod tests;

pub(crate) use asker::NodeAccess;
pub(super) use choose::few_replicas;
pub(crate) use cluster::ClusterDirectory;
pub(super) use member::{Member, forgets};
#[cfg(test)]
pub(crate) use node_list::NodeList;
#[cfg(test)]
pub(crate) use node_list::{NamedPrimary, SentinelReport};
pub(crate) use sentinel::SentinelDirectory;
