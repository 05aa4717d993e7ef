//! Several nodes that are one arbiter: who they are, and who of them has which keys.

mod asker;
mod choose;
mod cluster;
mod dial;
mod roster;
mod sentinel;
mod slots;
mod switch;
#[cfg(test)]
mod tests;

pub(crate) use cluster::ClusterDirectory;
pub(crate) use dial::Dial;
pub(super) use roster::Site;
pub(crate) use sentinel::SentinelDirectory;
pub(super) use slots::text;
