//! Several nodes that are one arbiter: finds them, and which of them has which keys.

mod access;
mod address_mapper;
mod asker;
mod channel_slot;
mod choose;
mod cluster;
mod known_sentinels;
mod member;
mod named;
mod node_list;
mod sentinel;
#[cfg(test)]
mod sentinel_tests;
mod slots;
mod switch;
#[cfg(test)]
mod tests;
mod warnings;

pub(crate) use access::NodeAccess;
pub(crate) use cluster::ClusterDirectory;
pub(super) use member::Member;
pub(super) use member::forgets;
#[cfg(test)]
pub(crate) use named::{NamedPrimary, SentinelReport};
#[cfg(test)]
pub(crate) use node_list::NodeList;
pub(crate) use sentinel::SentinelDirectory;
pub(super) use slots::text;
pub(super) use warnings::few_replicas;
