//! Several nodes that are one arbiter: finds them, and which of them has which keys.

mod asker;
mod choose;
mod cluster;
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
pub(super) use slots::text;

/// How many slots of how many shards these answers of a node name.
#[cfg(fuzzing)]
pub(super) fn fuzzed_slots(answers: &[redis::Value]) -> Result<usize, crate::domain::error::Fault> {
    let view = slots::view(answers, "127.0.0.1")?;
    let _ = (view.ids().count(), view.members().count());
    for shard in &view.shards {
        let _ = slots::channel_slot(&shard.slots);
    }
    Ok(view.covered())
}

/// Learns from the answers of several sentinels, twice.
#[cfg(fuzzing)]
pub(super) fn fuzzed_sentinels(answers: &[[redis::Value; 3]]) {
    let mut known = sentinel::KnownSentinels::default();
    let report =
        |answers: &[redis::Value; 3]| sentinel::read_report(answers, "127.0.0.1", "p").ok();
    let reports = answers.iter().filter_map(report).zip(1..);
    let reports = reports
        .map(|(report, port)| (Some(crate::store::redis::Address::new("127.0.0.1", port)), report));
    let reports: Vec<_> = reports.collect();
    for _ in 0..2 {
        let asked = known.to_ask().cloned().collect();
        known.learn(&asked, &reports);
        assert!(known.all().count() <= 24);
    }
}
