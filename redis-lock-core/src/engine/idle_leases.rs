//! The leases that linger, the oldest first, so that there are never too many.
//!
//! A lease is entered once, and not for each use. When it becomes the oldest, it may have been used
//! meanwhile, and is entered again with its new time.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::lock_id::LockId;
use crate::domain::clock::Moment;

/// The most leases that linger at once.
pub(crate) const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct IdleLeases(Mutex<IdleList>);

#[derive(Debug, Default)]
struct IdleList {
    entries: BTreeMap<NonZeroU64, (Moment, LockId)>,
    entered: u64,
}

impl IdleLeases {
    fn list(&self) -> MutexGuard<'_, IdleList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a lease that has been idle since `since`. Returns the number of the entry, and
    /// whether there are too many now.
    pub(super) fn enter(&self, id: &LockId, since: Moment) -> (NonZeroU64, bool) {
        let mut list = self.list();
        let number = NonZeroU64::MIN.saturating_add(list.entered);
        list.entered += 1;
        list.entries.insert(number, (since, id.clone()));
        (number, list.entries.len() > MOST)
    }

    pub(super) fn remove(&self, number: NonZeroU64) {
        self.list().entries.remove(&number);
    }

    /// Takes out the oldest entry, with its number, if there are too many.
    pub(super) fn pop_surplus(&self) -> Option<(NonZeroU64, (Moment, LockId))> {
        let mut list = self.list();
        if list.entries.len() <= MOST {
            return None;
        }
        list.entries.pop_first()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list().entries.is_empty()
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
