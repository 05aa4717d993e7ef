use std::ops::Range;
use std::time::Duration;

use super::LONGEST_TTL;

/// When holds were ended by force, in nanoseconds of the boot clock.
#[derive(Debug, Default)]
pub(crate) struct Forces {
    spans: Vec<(u64, Range<u64>)>,
}

impl Forces {
    /// Whatever had the key between these times may have been ended.
    pub(crate) fn add(&mut self, key: u64, from: u64, until: u64) {
        self.spans.push((key, from..until));
    }

    pub(crate) fn count(&self) -> usize {
        self.spans.len()
    }

    /// Whether the hold of a key that began at `start` may have been ended by `now`, and its holder need not
    /// know yet: a message may be lost, but no renewal makes its lease longer.
    pub(crate) fn may_have_ended(&self, key: u64, start: u64, now: u64) -> bool {
        let longest = as_nanos(LONGEST_TTL);
        self.spans.iter().any(|(forced, span)| {
            *forced == key
                && start <= span.end
                && (span.start..=span.end.saturating_add(longest)).contains(&now)
        })
    }
}

fn as_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_key_may_believe_in_its_hold_for_a_lease() {
        let longest = as_nanos(LONGEST_TTL);
        let mut forces = Forces::default();
        forces.add(1, 100, 200);
        assert!(forces.may_have_ended(1, 90, 100) && forces.may_have_ended(1, 200, 200 + longest));
        assert!(!forces.may_have_ended(2, 90, 150), "another key");
        assert!(!forces.may_have_ended(1, 201, 300), "it began later");
        assert!(!forces.may_have_ended(1, 90, 99), "nobody had forced it yet");
        assert!(!forces.may_have_ended(1, 90, 201 + longest), "its lease must be over");
    }
}
