use std::ops::Range;
use std::time::Duration;

use super::TTL;

/// A generator that repeats itself for the same seed (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// The number of one among so many.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }

    /// One of these, of which there must be some.
    pub(crate) fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[self.index(among.len())].clone()
    }

    /// How long a fault lasts: from milliseconds to longer than a lease.
    pub(crate) fn fault_time(&mut self) -> Duration {
        let longest = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX) * 2;
        if self.once_in(2) { self.millis(1..200) } else { self.millis(200..longest) }
    }

    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.below(range.end - range.start))
    }
}
