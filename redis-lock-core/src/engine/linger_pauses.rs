//! Pauses in which the leases of a key do not linger.
//!
//! When another process asks for an idle lease before it was used again, the lease has saved
//! nothing here, and has cost the other process more than a free key. So the key does not linger
//! for a second after that, then for two, up to half a minute, until one of its leases is used
//! often.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::idle_event::KeyUse;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// How many keys of one shard are remembered.
const MOST: usize = 156;

/// The pauses of one shard.
#[derive(Debug, Default)]
pub(super) struct LingerPauses(HashMap<Arc<str>, Pause>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    length: Duration,
    until: Moment,
}

impl LingerPauses {
    pub(super) fn has(&self, key: &str, now: Moment) -> bool {
        !self.0.is_empty() && self.0.get(key).is_some_and(|pause| now < pause.until)
    }

    pub(super) fn note(&mut self, key: &Arc<str>, key_use: KeyUse, now: Moment) {
        match key_use {
            KeyUse::AskedAwayUnused => self.pause(key, now),
            KeyUse::Used => drop(self.0.remove(key)),
        }
    }

    fn pause(&mut self, key: &Arc<str>, now: Moment) {
        let before = self.0.get(key).copied();
        if before.is_some_and(|pause| now < pause.until) {
            // The lease is older than the pause.
            return;
        }
        if before.is_none() {
            self.make_room(now);
        }
        let length = before.map_or(SHORTEST, |pause| (pause.length * 2).min(LONGEST));
        self.0.insert(Arc::clone(key), Pause { length, until: now.after(length) });
    }

    fn make_room(&mut self, now: Moment) {
        if self.0.len() < MOST {
            return;
        }
        self.0.retain(|_, pause| now < pause.until);
        if self.0.len() >= MOST {
            let soonest = self.0.iter().min_by_key(|(_, pause)| pause.until);
            if let Some(key) = soonest.map(|(key, _)| Arc::clone(key)) {
                self.0.remove(&key);
            }
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
        let mut off = LingerPauses::default();
        let mut now = Moment::at_millis(1_000);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            off.note(&key(1), KeyUse::AskedAwayUnused, now);
            let end = now.after(Duration::from_secs(seconds));
            let before = Moment::from_nanos(end.as_nanos() - 1);
            assert!(off.has("k1", before) && !off.has("k1", end), "{seconds}");
            off.note(&key(1), KeyUse::AskedAwayUnused, before);
            assert!(!off.has("k1", end), "not lengthened by a lease of before");
            now = end;
        }
        assert!(!off.has("k2", Moment::at_millis(1_000)));
        off.note(&key(1), KeyUse::Used, now);
        off.note(&key(1), KeyUse::AskedAwayUnused, now);
        assert!(!off.has("k1", now.after(SHORTEST)), "from the beginning");
    }

    #[test]
    fn no_more_than_some_keys_are_remembered_and_the_soonest_is_forgotten() {
        let mut off = LingerPauses::default();
        let at = |number| Moment::at_millis(1_000 + number);
        for number in 0..200 {
            off.note(&key(number), KeyUse::AskedAwayUnused, at(number));
        }
        assert_eq!(off.0.len(), MOST);
        assert!(off.has("k199", at(200)) && !off.has("k0", at(200)));
        // Pauses that are over make room.
        off.note(&key(500), KeyUse::AskedAwayUnused, at(5_000));
        assert_eq!(off.0.len(), 1);
    }
}
