//! What became of the leases of a key that could linger.
//!
//! A lease that another process asks for before it was taken again has saved nothing here, and has
//! cost the other process more than a free key. One that was taken again has saved the commands for
//! each of these calls. So a key has a balance. When it falls below zero, the leases of the key do
//! not linger for a second, then for two, up to half a minute, until the balance is good again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::key_habits::{KeyHabits, KeyUse};
use crate::domain::key_hashes::KeyHashes;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// A key with this balance is used by this process more than by others.
const GOOD: u32 = 8;

/// The best balance: after as many leases that were asked for unused, the key does not linger.
const BEST: u32 = 32;

/// How long it counts that another process had the lock.
const ELSEWHERE: Duration = Duration::from_secs(1);

/// How many keys of one shard are remembered.
const MOST: usize = 156;

/// What one shard remembers.
#[derive(Debug, Default)]
pub(super) struct LingerHistory(HashMap<Arc<str>, KeyRecord, KeyHashes>);

#[derive(Clone, Copy, Debug)]
struct KeyRecord {
    /// How many calls needed no command, less how many leases were asked for unused.
    balance: u32,
    /// The length of the last pause, until the balance is good.
    pause: Duration,
    /// The end of the last pause.
    paused_until: Moment,
    elsewhere_until: Moment,
    noted: Moment,
}

impl KeyRecord {
    fn given_away(&mut self, taken_again: u32, was_idle: bool, now: Moment) {
        if was_idle && taken_again == 0 {
            // A lease that is older than the pause says nothing new.
            if now >= self.paused_until {
                self.unused(now);
            }
            return;
        }
        let earned = taken_again.saturating_sub(u32::from(was_idle));
        self.balance = self.balance.saturating_add(earned).min(BEST);
        if self.balance >= GOOD {
            (self.pause, self.paused_until) = (Duration::ZERO, Moment::START);
        }
    }

    fn unused(&mut self, now: Moment) {
        if let Some(less) = self.balance.checked_sub(1) {
            self.balance = less;
            return;
        }
        self.pause = (self.pause * 2).clamp(SHORTEST, LONGEST);
        self.paused_until = now.after(self.pause);
    }
}

impl LingerHistory {
    pub(super) fn of(&self, key: &str, now: Moment) -> KeyHabits {
        if self.0.is_empty() {
            return KeyHabits::default();
        }
        self.0.get(key).map_or_else(KeyHabits::default, |record| KeyHabits {
            lingers: now >= record.paused_until,
            is_ours_mostly: record.balance >= GOOD,
            may_be_idle_elsewhere: now < record.elsewhere_until,
        })
    }

    pub(super) fn note(&mut self, key: &Arc<str>, key_use: KeyUse, now: Moment) {
        let record = self.record(key, now);
        record.noted = now;
        match key_use {
            KeyUse::GivenAway { taken_again, was_idle } => {
                record.given_away(taken_again, was_idle, now);
            }
            KeyUse::MayBeIdleElsewhere => record.elsewhere_until = now.after(ELSEWHERE),
            KeyUse::WasFree => record.elsewhere_until = now,
        }
    }

    fn record(&mut self, key: &Arc<str>, now: Moment) -> &mut KeyRecord {
        if self.0.len() >= MOST && !self.0.contains_key(key) {
            let oldest = self.0.iter().min_by_key(|(_, record)| record.noted);
            if let Some(oldest) = oldest.map(|(key, _)| Arc::clone(key)) {
                self.0.remove(&oldest);
            }
        }
        self.0.entry(Arc::clone(key)).or_insert(KeyRecord {
            balance: 0,
            pause: Duration::ZERO,
            paused_until: Moment::START,
            elsewhere_until: Moment::START,
            noted: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNUSED: KeyUse = KeyUse::GivenAway { taken_again: 0, was_idle: true };

    fn taken_again(taken_again: u32) -> KeyUse {
        KeyUse::GivenAway { taken_again, was_idle: true }
    }

    fn key(number: u64) -> Arc<str> {
        format!("k{number}").into()
    }

    #[test]
    fn each_pause_is_twice_as_long_as_the_one_before() {
        let mut history = LingerHistory::default();
        let mut now = Moment::at_millis(1_000);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            history.note(&key(1), UNUSED, now);
            let end = now.after(Duration::from_secs(seconds));
            let before = Moment::from_nanos(end.as_nanos() - 1);
            assert!(!history.of("k1", before).lingers && history.of("k1", end).lingers);
            history.note(&key(1), UNUSED, before);
            assert!(history.of("k1", end).lingers, "not lengthened by a lease of before");
            now = end;
        }
        assert_eq!(history.of("k2", Moment::at_millis(1_000)), KeyHabits::default());
        history.note(&key(1), taken_again(GOOD + 1), now);
        for _ in 0..GOOD {
            history.note(&key(1), UNUSED, now);
            assert!(history.of("k1", now).lingers);
        }
        history.note(&key(1), UNUSED, now);
        assert!(!history.of("k1", now).lingers);
        assert!(history.of("k1", now.after(SHORTEST)).lingers, "from the beginning");
    }

    #[test]
    fn a_key_that_is_asked_away_unused_now_and_then_goes_on_lingering() {
        let mut history = LingerHistory::default();
        let now = Moment::at_millis(1_000);
        for _ in 0..100 {
            history.note(&key(1), taken_again(3), now);
            history.note(&key(1), UNUSED, now);
            assert!(history.of("k1", now).lingers);
        }
        assert!(history.of("k1", now).is_ours_mostly);
        history.note(&key(1), taken_again(BEST + 1), now);
        for left in (0..BEST).rev() {
            assert!(history.of("k1", now).lingers);
            history.note(&key(1), UNUSED, now);
            assert_eq!(history.of("k1", now).is_ours_mostly, left >= GOOD);
        }
        history.note(&key(1), UNUSED, now);
        assert!(!history.of("k1", now).lingers, "the others use it more by now");
    }

    #[test]
    fn what_was_asked_for_in_use_has_cost_nothing() {
        let mut history = LingerHistory::default();
        let now = Moment::at_millis(1_000);
        for _ in 0..GOOD {
            assert!(!history.of("k1", now).is_ours_mostly);
            history.note(&key(1), KeyUse::GivenAway { taken_again: 1, was_idle: false }, now);
        }
        assert!(history.of("k1", now).is_ours_mostly);
        // A lease that was taken again once has earned what its way elsewhere has cost.
        history.note(&key(2), taken_again(1), now);
        history.note(&key(2), UNUSED, now);
        assert!(!history.of("k2", now).lingers);
    }

    #[test]
    fn that_a_lease_is_elsewhere_counts_for_a_moment() {
        let mut history = LingerHistory::default();
        let now = Moment::at_millis(1_000);
        history.note(&key(1), KeyUse::MayBeIdleElsewhere, now);
        assert!(history.of("k1", now.after(ELSEWHERE / 2)).may_be_idle_elsewhere);
        assert!(history.of("k1", now).lingers);
        assert_eq!(history.of("k1", now.after(ELSEWHERE)), KeyHabits::default());
        history.note(&key(1), KeyUse::WasFree, now);
        assert_eq!(history.of("k1", now), KeyHabits::default());
    }

    #[test]
    fn no_more_than_some_keys_are_remembered_and_the_oldest_is_forgotten() {
        let mut history = LingerHistory::default();
        let at = |number| Moment::at_millis(1_000 + number);
        for number in 0..200 {
            history.note(&key(number), UNUSED, at(number));
            if number == 100 {
                history.note(&key(0), UNUSED, at(number));
            }
        }
        assert_eq!(history.0.len(), MOST);
        let lingers = |number| history.of(&key(number), at(200)).lingers;
        assert!(!lingers(199) && lingers(1) && !lingers(0));
    }
}
