//! Several nodes that are one arbiter: finds them, and which of them has which keys.

mod asker;
mod choose;
mod cluster;
mod dial;
mod roster;
mod sentinel;
mod site;
mod slots;
mod switch;
#[cfg(test)]
mod tests;
mod warnings;

pub(crate) use cluster::ClusterDirectory;
pub(crate) use dial::Dial;
pub(crate) use sentinel::SentinelDirectory;
pub(super) use site::Site;
pub(super) use slots::text;
pub(super) use warnings::few_replicas;
