//! Leases that linger: how many, at which keys none does for a while, and answers to those who ask for one.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::lock_id::LockId;
use crate::domain::clock::Moment;
use crate::sync::NonPoisonMutex;

/// The most leases that linger at once.
pub(crate) const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct IdleLeases(NonPoisonMutex<IdleList>);

#[derive(Debug, Default)]
struct IdleList {
    entries: BTreeMap<NonZeroU64, (Moment, LockId)>,
    entered: u64,
}

impl IdleLeases {
    /// Enters a lease that has been idle since `since`. Returns the number of the entry, and
    /// whether there are too many now.
    pub(super) fn enter(&self, id: &LockId, since: Moment) -> (NonZeroU64, bool) {
        let mut list = self.0.lock();
        let number = NonZeroU64::MIN.saturating_add(list.entered);
        list.entered += 1;
        list.entries.insert(number, (since, id.clone()));
        (number, list.entries.len() > MOST)
    }

    pub(super) fn remove(&self, number: NonZeroU64) {
        self.0.lock().entries.remove(&number);
    }

    /// Takes out the oldest entry, with its number, if there are too many.
    pub(super) fn pop_surplus(&self) -> Option<(NonZeroU64, (Moment, LockId))> {
        let mut list = self.0.lock();
        if list.entries.len() <= MOST {
            return None;
        }
        list.entries.pop_first()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().entries.len()
    }
}

/// The most answers in a second.
const MOST_ANSWERS: u32 = 1_000;

#[derive(Debug, Default)]
pub(super) struct InUseAnswers(NonPoisonMutex<Option<Second>>);

/// The second in which answers are counted, and how many there were.
#[derive(Clone, Copy, Debug)]
struct Second {
    ends: Moment,
    count: u32,
}

impl InUseAnswers {
    /// Whether to answer now. Counts the answer.
    pub(super) fn may_answer(&self, now: Moment) -> bool {
        let mut second = self.0.lock();
        let next = Second { ends: now.after(Duration::from_secs(1)), count: 0 };
        let present = second.filter(|it| now < it.ends).unwrap_or(next);
        let may = present.count < MOST_ANSWERS;
        *second = Some(Second { count: present.count + u32::from(may), ..present });
        may
    }
}

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// How many keys of one shard are remembered.
const MOST_PAUSES: usize = 156;

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
        if self.0.len() >= MOST_PAUSES && !self.0.contains_key(key) {
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

    #[test]
    fn lg16_the_oldest_of_too_many_goes_first() {
        let leases = IdleLeases::default();
        let id = |number: usize| LockId::mutex(&format!("k{number}"));
        let since = |number: usize| Moment::at_millis(number as u64);
        let mut first = None;
        for number in 0..MOST {
            let (entry, is_surplus) = leases.enter(&id(number), since(number));
            assert!(!is_surplus);
            first.get_or_insert(entry);
        }
        assert!(leases.pop_surplus().is_none());
        leases.remove(first.unwrap());
        assert!(!leases.enter(&id(MOST), since(MOST)).1);
        assert!(leases.enter(&id(MOST + 1), since(MOST + 1)).1);
        assert_eq!(leases.pop_surplus().unwrap().1, (since(1), id(1)));
        assert!(leases.pop_surplus().is_none());
    }
}

#[cfg(test)]
mod in_use_answers_tests {
    use super::*;

    #[test]
    fn lg18_a_thousand_answers_a_second_are_given_and_no_more() {
        let answers = InUseAnswers::default();
        let given =
            |at: u64| (0..3_000).filter(|_| answers.may_answer(Moment::at_millis(at))).count();
        assert_eq!(given(5_000), 1_000);
        assert_eq!(given(5_999), 0);
        assert_eq!(given(6_000), 1_000);
        assert_eq!(given(9_500), 1_000, "a second begins with its first answer");
        assert_eq!(given(10_400), 0);
    }
}

#[cfg(test)]
mod linger_pauses_tests {
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
        assert_eq!(pauses.0.len(), MOST_PAUSES);
        let lingers = |number| pauses.lets_linger(&key(number), at(200));
        assert!(!lingers(199) && lingers(1));
    }
}
