//! The keys whose leases do not linger for a while.
//!
//! A lease that another process asks for before it was taken again has saved nothing here, and has
//! cost the other process more than a free key. So the next leases of the key do not linger for a
//! second, then for two, up to half a minute, until one of them has been taken again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// How many keys of one shard are remembered.
const MOST: usize = 156;

/// What one shard remembers: the length of the last pause of a key, and its end.
#[derive(Debug, Default)]
pub(super) struct LingerPauses(BTreeMap<Arc<str>, (Duration, Moment)>);

impl LingerPauses {
    /// Whether the leases of a key may linger.
    pub(super) fn lets_linger(&self, key: &str, now: Moment) -> bool {
        self.0.get(key).is_none_or(|(_, end)| now >= *end)
    }

    /// Another process has asked for a lease, which was taken again here before, or not.
    pub(super) fn asked_away(&mut self, key: &Arc<str>, was_taken_again: bool, now: Moment) {
        if was_taken_again {
            self.0.remove(key);
            return;
        }
        if self.0.len() >= MOST && !self.0.contains_key(key) {
            let first = self.0.iter().min_by_key(|(_, (_, end))| *end);
            if let Some(first) = first.map(|(key, _)| Arc::clone(key)) {
                self.0.remove(&first);
            }
        }
        let (length, end) = self.0.entry(Arc::clone(key)).or_insert((Duration::ZERO, now));
        // A lease that is older than the pause says nothing new.
        if now >= *end {
            *length = (*length * 2).clamp(SHORTEST, LONGEST);
            *end = now.after(*length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Arc<str> {
        format!("k{number}").into()
    }

    #[test]
    fn each_pause_is_twice_as_long_as_the_one_before() {
        let mut pauses = LingerPauses::default();
        let mut now = Moment::at_millis(1_000);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            pauses.asked_away(&key(1), false, now);
            let end = now.after(Duration::from_secs(seconds));
            let before = Moment::from_nanos(end.as_nanos() - 1);
            assert!(!pauses.lets_linger("k1", before) && pauses.lets_linger("k1", end));
            pauses.asked_away(&key(1), false, before);
            assert!(pauses.lets_linger("k1", end), "not lengthened by a lease of before");
            now = end;
        }
        assert!(pauses.lets_linger("k2", Moment::at_millis(1_000)));
        pauses.asked_away(&key(1), true, now);
        pauses.asked_away(&key(1), false, now);
        assert!(!pauses.lets_linger("k1", now));
        assert!(pauses.lets_linger("k1", now.after(SHORTEST)), "from the beginning");
    }

    #[test]
    fn a_lease_that_was_taken_again_ends_the_pause() {
        let mut pauses = LingerPauses::default();
        let now = Moment::at_millis(1_000);
        pauses.asked_away(&key(1), false, now);
        pauses.asked_away(&key(1), true, now);
        assert!(pauses.lets_linger("k1", now));
    }

    #[test]
    fn no_more_than_some_keys_are_remembered_and_the_first_to_end_is_forgotten() {
        let mut pauses = LingerPauses::default();
        let at = |number| Moment::at_millis(1_000 + number);
        for number in 0..200 {
            pauses.asked_away(&key(number), false, at(number));
        }
        assert_eq!(pauses.0.len(), MOST);
        let lingers = |number| pauses.lets_linger(&key(number), at(200));
        assert!(!lingers(199) && lingers(1));
    }
}
