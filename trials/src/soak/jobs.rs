use std::collections::BTreeMap;
use std::time::Duration;

use redis_locks::{LockRequest, Locks};

use super::clock::nanos;

/// How long it stays known that a job was done. Shorter than what is waited for at the end, when nothing
/// may be left.
const PERIOD: Duration = Duration::from_secs(6);

/// Each slot of time has a job of its own.
const SLOT: Duration = Duration::from_secs(3);

/// The job of the slot at this time, and the request for its lock.
pub(crate) fn request(locks: &Locks, at: u64) -> (u64, LockRequest) {
    let slot = at / nanos(SLOT);
    (slot, locks.mutex(format!("job:{slot}")).once(PERIOD))
}

/// What was done once in a period, as it should be.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// When each call that succeeded began, and when it had the lock; by slot.
    done: BTreeMap<u64, Vec<(u64, u64)>>,
    /// How many calls found their job done.
    pub(crate) found: u64,
}

impl Jobs {
    pub(crate) fn done(&mut self, slot: u64, from: u64, at: u64) {
        self.done.entry(slot).or_default().push((from, at));
    }

    pub(crate) fn count(&self) -> u64 {
        self.done.values().map(|done| done.len() as u64).sum()
    }

    /// Jobs that were done again while it must have been known that they were done.
    pub(crate) fn done_again(&self) -> Vec<String> {
        let again = |(slot, done): (&u64, &Vec<(u64, u64)>)| {
            let mut done = done.clone();
            done.sort_unstable_by_key(|(_, at)| *at);
            let is_early = |pair: &[(u64, u64)]| pair[1].1 < pair[0].0 + nanos(PERIOD);
            done.windows(2).any(is_early).then(|| format!("job {slot} was done again: {done:?}"))
        };
        self.done.iter().filter_map(again).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_done_again_before_its_period_was_over_is_found() {
        let mut jobs = Jobs::default();
        jobs.done(1, 10, 20);
        jobs.done(2, 15, 25);
        jobs.done(1, 30 + nanos(PERIOD), 40 + nanos(PERIOD));
        assert_eq!((jobs.count(), jobs.done_again().len()), (3, 0));
        jobs.done(2, 18, 14 + nanos(PERIOD));
        assert_eq!(jobs.done_again().len(), 1);
    }
}
