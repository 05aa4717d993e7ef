//! The holders of one lock. Adding, renewing and removing one costs about the same however many
//! there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::domain::clock::Moment;
use crate::domain::kind::Kind;

/// A holder, or a waiter that was granted the lock and has not claimed it yet.
#[derive(Clone, Debug)]
pub(crate) struct StoredHolder {
    pub(crate) token: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) end: Moment,
    /// Whether a waiter has arrived since a mutex was taken.
    pub(super) waited_for: bool,
}

impl StoredHolder {
    /// The holder of a mutex, as a server shows it.
    pub(crate) fn of_mutex(token: Arc<str>, end: Moment, waited_for: bool) -> Self {
        Self { token, kind: Kind::Mutex, end, waited_for }
    }

    /// Whether a waiter has arrived since a mutex was taken.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waited_for
    }
}

/// All holders of one lock.
#[derive(Clone, Default)]
pub(crate) struct Holders {
    /// In the order of their coming.
    by_number: BTreeMap<u64, StoredHolder>,
    numbers: BTreeMap<Arc<str>, u64>,
    ends: BTreeSet<(Moment, u64)>,
    /// How many of them hold a permit with each limit.
    limits: BTreeMap<u32, usize>,
    next: u64,
}

/// Shows the holders only, so that two sets with the same holders print the same.
impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl FromIterator<StoredHolder> for Holders {
    fn from_iter<I: IntoIterator<Item = StoredHolder>>(each: I) -> Self {
        let mut holders = Self::default();
        each.into_iter().for_each(|holder| holders.add(holder));
        holders
    }
}

impl Holders {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The holder that came first. All others are of the same family.
    pub(crate) fn first(&self) -> Option<&StoredHolder> {
        self.by_number.first_key_value().map(|(_, holder)| holder)
    }

    /// In the order of their coming.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StoredHolder> {
        self.by_number.values()
    }

    pub(crate) fn get(&self, token: &Arc<str>) -> Option<&StoredHolder> {
        self.by_number.get(self.numbers.get(token)?)
    }

    /// The holder whose lease ends first.
    pub(super) fn soonest(&self) -> Option<&StoredHolder> {
        self.by_number.get(&self.ends.first()?.1)
    }

    /// The holder whose lease ends last.
    pub(super) fn latest(&self) -> Option<&StoredHolder> {
        self.by_number.get(&self.ends.last()?.1)
    }

    /// The smallest limit among the permits that are held.
    pub(super) fn least_limit(&self) -> Option<u32> {
        self.limits.first_key_value().map(|(limit, _)| *limit)
    }

    /// The limit of a held permit that differs from ours, if there is one.
    pub(super) fn other_limit(&self, ours: u32) -> Option<u32> {
        self.limits.keys().copied().find(|limit| *limit != ours)
    }

    /// Adds a holder.
    pub(super) fn add(&mut self, holder: StoredHolder) {
        let number = self.next;
        self.next += 1;
        self.numbers.insert(Arc::clone(&holder.token), number);
        self.ends.insert((holder.end, number));
        if let Some(limit) = holder.kind.limit() {
            *self.limits.entry(limit).or_default() += 1;
        }
        self.by_number.insert(number, holder);
    }

    pub(super) fn remove(&mut self, token: &Arc<str>) -> Option<StoredHolder> {
        let number = self.numbers.remove(token)?;
        self.forget(number)
    }

    /// Sets when the lease of a token ends; returns `false` when it has none.
    pub(crate) fn set_end(&mut self, token: &Arc<str>, end: Moment) -> bool {
        let Some(number) = self.numbers.get(token) else { return false };
        let Some(holder) = self.by_number.get_mut(number) else { return false };
        self.ends.remove(&(holder.end, *number));
        self.ends.insert((end, *number));
        holder.end = end;
        true
    }

    /// Turns the writer's hold into a reader's.
    pub(super) fn downgrade(&mut self, token: &Arc<str>) {
        if let Some(holder) =
            self.numbers.get(token).and_then(|number| self.by_number.get_mut(number))
        {
            holder.kind = Kind::Read;
        }
    }

    /// Notes that a waiter has arrived.
    pub(super) fn note_waiter(&mut self) {
        self.by_number.values_mut().for_each(|holder| holder.waited_for = true);
    }

    /// Removes holders whose leases have ended.
    pub(super) fn expire(&mut self, now: Moment) {
        while let Some((end, number)) = self.ends.first().copied()
            && end <= now
        {
            if let Some(holder) = self.forget(number) {
                self.numbers.remove(&holder.token);
            }
        }
    }

    fn forget(&mut self, number: u64) -> Option<StoredHolder> {
        let holder = self.by_number.remove(&number)?;
        self.ends.remove(&(holder.end, number));
        if let Some(limit) = holder.kind.limit()
            && let Some(count) = self.limits.get_mut(&limit)
        {
            *count -= 1;
            if *count == 0 {
                self.limits.remove(&limit);
            }
        }
        Some(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(token: &str, kind: Kind, end: u64) -> StoredHolder {
        StoredHolder { token: token.into(), kind, end: Moment::at_millis(end), waited_for: false }
    }

    fn tokens(holders: &Holders) -> Vec<String> {
        holders.iter().map(|holder| holder.token.to_string()).collect()
    }

    #[test]
    fn those_whose_leases_are_over_go_whenever_they_came() {
        let mut holders = Holders::default();
        for (token, end) in [("a", 30), ("b", 10), ("c", 20)] {
            holders.add(holder(token, Kind::Read, end));
        }
        assert!(holders.set_end(&"b".into(), Moment::at_millis(40)));
        assert!(!holders.set_end(&"d".into(), Moment::at_millis(40)));
        assert_eq!(holders.soonest().map(|it| &*it.token), Some("c"));
        assert_eq!(holders.latest().map(|it| &*it.token), Some("b"));
        holders.expire(Moment::at_millis(30));
        assert_eq!(tokens(&holders), ["b"]);
        assert!(holders.get(&"a".into()).is_none() && holders.remove(&"c".into()).is_none());
        assert!(holders.remove(&"b".into()).is_some() && holders.is_empty());
        assert!(holders.soonest().is_none());
    }

    #[test]
    fn limits_count_for_as_long_as_somebody_has_a_permit_of_them() {
        let mut holders = Holders::default();
        for (token, limit) in [("a", 3), ("b", 2), ("c", 2)] {
            holders.add(holder(token, Kind::Permit { limit }, 10));
        }
        holders.remove(&"b".into());
        assert_eq!((holders.least_limit(), holders.other_limit(2)), (Some(2), Some(3)));
        holders.remove(&"c".into());
        assert_eq!((holders.least_limit(), holders.other_limit(3)), (Some(3), None));
        holders.expire(Moment::at_millis(10));
        assert_eq!(holders.least_limit(), None);
    }
}
