use std::ops::Range;
use std::time::Duration;

use super::clock::nanos;
use super::kind::is_volatile;

/// An answer of a server that was replaced is believed for that long, if it was on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The times in which servers may have lost what they had answered, in nanoseconds of the boot clock.
///
/// They concern volatile keys only: what a server is made to lose is neither synced to its disk nor
/// confirmed by a replica.
#[derive(Debug, Clone, Default)]
pub(crate) struct Losses {
    /// Volatile keys are lost at any time.
    pub(crate) always: bool,
    spans: Vec<Range<u64>>,
}

impl Losses {
    pub(crate) fn new(always: bool) -> Self {
        Self { always, spans: Vec::new() }
    }

    /// Data may have been lost between these times.
    pub(crate) fn add(&mut self, from: u64, until: u64) {
        self.spans.push(from..until.saturating_add(nanos(ON_ITS_WAY)));
    }

    pub(crate) fn count(&self) -> usize {
        self.spans.len()
    }

    /// Whether a lock of this key, granted at `first`, may have been unknown to the server that
    /// granted it again at `second`.
    pub(crate) fn explain(&self, key: u64, first: u64, second: u64) -> bool {
        let lost = |span: &Range<u64>| first <= span.end && span.start <= second;
        is_volatile(key) && (self.always || self.spans.iter().any(lost))
    }

    /// Whether at this time two servers may have answered for the same key.
    pub(crate) fn is_disputed(&self, at: u64) -> bool {
        self.spans.iter().any(|span| span.contains(&at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_loss_explains_what_began_before_its_end_and_met_another_after_its_beginning() {
        let mut losses = Losses::default();
        losses.add(10 * SECOND, 20 * SECOND);
        let explain = |first, second| losses.explain(1, first * SECOND, second * SECOND);
        assert!(explain(5, 12) && explain(5, 30) && explain(15, 16) && explain(21, 22));
        assert!(!explain(5, 9) && !explain(22, 23));
        assert!(!losses.explain(2, 5 * SECOND, 12 * SECOND), "nothing of durable keys is lost");
        assert!(losses.is_disputed(12 * SECOND) && !losses.is_disputed(22 * SECOND));
    }

    #[test]
    fn where_volatile_keys_are_always_lost_durable_ones_are_not() {
        let losses = Losses::new(true);
        assert!(losses.explain(1, 5, 6) && !losses.explain(2, 5, 6));
    }
}
