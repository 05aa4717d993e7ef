//! Records the grants of one lock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One acquisition: when it was asked for, and when it was there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) asked: Instant,
    pub(super) granted: Instant,
}

/// The grants of one lock, and how many holders it has.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) kind: &'static str,
    /// The keys, as the servers know them.
    pub(super) keys: Vec<String>,
    /// How many may hold it at once.
    pub(super) room: u64,
    inside: AtomicU64,
    pub(super) overlaps: AtomicU64,
    pub(super) losses: AtomicU64,
    grants: Mutex<Vec<Grant>>,
}

impl Book {
    pub(super) fn new(kind: &'static str, keys: Vec<String>, room: u64) -> Self {
        let (inside, overlaps, losses) = Default::default();
        Self { kind, keys, room, inside, overlaps, losses, grants: Mutex::default() }
    }

    pub(super) fn enter(&self, asked: Instant) {
        if self.inside.fetch_add(1, SeqCst) >= self.room {
            self.overlaps.fetch_add(1, SeqCst);
        }
        self.grants().push(Grant { asked, granted: Instant::now() });
    }

    pub(super) fn leave(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }

    pub(super) fn count(&self) -> usize {
        self.grants().len()
    }

    /// The longest time without a grant in this span, and where in it that began.
    pub(super) fn longest_gap(&self, from: Instant, until: Instant) -> (Duration, Duration) {
        let grants = self.grants();
        let mut times: Vec<_> = grants.iter().map(|grant| grant.granted).collect();
        times.retain(|at| (from..until).contains(at));
        times.sort_unstable();
        let starts = std::iter::once(from).chain(times.iter().copied());
        let ends = times.iter().copied().chain([until]);
        let gaps = starts.zip(ends).map(|(start, end)| (end - start, start - from));
        gaps.max().unwrap_or_default()
    }

    /// What was granted after this moment, in order.
    pub(super) fn granted_after(&self, moment: Instant) -> Vec<Grant> {
        let mut grants = self.grants().clone();
        grants.retain(|grant| grant.granted > moment);
        grants.sort_unstable_by_key(|grant| grant.granted);
        grants
    }

    fn grants(&self) -> MutexGuard<'_, Vec<Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
