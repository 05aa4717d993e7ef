//! What nodes of a cluster and sentinels answer, as fuzzing makes it up.

use redis::Value;

use super::{cluster_view, sentinel};
use crate::domain::fault::Fault;
use crate::store::redis::Address;

/// How many slots of how many shards these answers of a node name.
pub(crate) fn slots(answers: &[Value]) -> Result<usize, Fault> {
    let view = cluster_view::view(answers, "127.0.0.1")?;
    let _ = (view.ids().count(), view.members().count());
    for shard in &view.shards {
        let _ = cluster_view::channel_slot(&shard.slots);
    }
    Ok(view.covered())
}

/// Learns from the answers of several sentinels, twice.
pub(crate) fn sentinels(answers: &[[Value; 3]]) {
    let mut known = sentinel::KnownSentinels::default();
    let report = |answers: &[Value; 3]| sentinel::read_report(answers, "127.0.0.1", "p").ok();
    let reports = answers.iter().filter_map(report).zip(1..);
    let reports: Vec<_> =
        reports.map(|(report, port)| (Some(Address::new("127.0.0.1", port)), report)).collect();
    for _ in 0..2 {
        let asked = known.to_ask().cloned().collect();
        known.learn(&asked, &reports);
        assert!(known.all().count() <= 24);
    }
}
