use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::TTL;
use super::clock::nanos;

/// After a fault connections are made again and the nodes of a cluster are looked up, for which a busy machine
/// takes so long; and a loss is noticed later than it happened.
const LATE: Duration = Duration::from_millis(600);

/// What may keep a lease from being renewed, and the leases that were lost.
#[derive(Debug, Default)]
pub(crate) struct Excuses {
    faults: Vec<FaultTime>,
    losses: Vec<LostLease>,
}

#[derive(Debug)]
struct FaultTime {
    /// The worker that it concerns; `None` for all of them.
    worker: Option<u64>,
    what: String,
    time: Range<u64>,
}

/// A lease that was renewed until it was lost.
#[derive(Debug)]
struct LostLease {
    worker: u64,
    lease: Duration,
    at: u64,
}

impl Excuses {
    pub(crate) fn add(&mut self, worker: Option<u64>, what: String, time: Range<u64>) {
        self.faults.push(FaultTime { worker, what, time });
    }

    /// A hold of this worker is found lost. Without a lease it was not renewed. A shorter one than usual has
    /// 270 ms for its renewal, which a busy machine may need for the disks of a server and its replica.
    pub(crate) fn lost(&mut self, worker: u64, lease: Option<Duration>, at: u64) {
        let lease = lease.filter(|lease| *lease >= TTL);
        self.losses.extend(lease.map(|lease| LostLease { worker, lease, at }));
    }

    /// How many leases each sort of fault has cost, and those that were lost although nothing was wrong in
    /// their last time.
    pub(crate) fn explain(&self) -> (BTreeMap<String, u64>, Vec<String>) {
        let (mut by_fault, mut without) = (BTreeMap::new(), Vec::new());
        for LostLease { worker, lease, at } in &self.losses {
            let last = at.saturating_sub(nanos(*lease + LATE))..*at;
            let overlap = |time: &Range<u64>| {
                time.end.min(last.end).saturating_sub(time.start.max(last.start))
            };
            let faults = self.faults.iter().filter(|it| it.worker.is_none_or(|it| it == *worker));
            // The one that filled most of its last time.
            match faults.max_by_key(|it| overlap(&it.time)).filter(|it| overlap(&it.time) > 0) {
                Some(fault) => *by_fault.entry(sort(&fault.what)).or_default() += 1,
                None => without.push(format!(
                    "worker {worker} lost a lease of {lease:?}, and nothing was wrong{}",
                    self.before(*worker, *at)
                )),
            }
        }
        (by_fault, without)
    }

    /// The last fault of a worker before this time.
    fn before(&self, worker: u64, at: u64) -> String {
        let faults = self.faults.iter().filter(|it| it.worker.is_none_or(|it| it == worker));
        let last = faults.filter(|it| it.time.end < at).max_by_key(|it| it.time.end);
        last.map_or_else(String::new, |FaultTime { what, time, .. }| {
            format!(" since {:?} before: {what}", Duration::from_nanos(at - time.end))
        })
    }
}

/// A description without numbers.
fn sort(what: &str) -> String {
    let words = what.split(' ').filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_loss_needs_a_fault_of_its_worker_in_its_last_time() {
        let mut excuses = Excuses::default();
        excuses.add(Some(1), "worker 1 frozen for 2s".into(), 10 * SECOND..12 * SECOND);
        let lease = Some(Duration::from_secs(1));
        excuses.lost(1, lease, 11 * SECOND);
        assert_eq!(excuses.explain(), ([("worker frozen for".to_owned(), 1)].into(), vec![]));
        excuses.lost(2, lease, 11 * SECOND);
        excuses.lost(1, lease, 9 * SECOND);
        excuses.lost(1, lease, 14 * SECOND);
        excuses.lost(1, None, 20 * SECOND);
        assert_eq!(excuses.explain().1.len(), 3, "another's, too early, and too late");
        excuses.add(None, "server frozen".into(), 10 * SECOND..14 * SECOND);
        assert_eq!(excuses.explain().1.len(), 1);
    }
}
