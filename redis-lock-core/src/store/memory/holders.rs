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
    pub(crate) waited_for: bool,
    /// The number of its permit, if it asked for one.
    pub(crate) slot: Option<u32>,
}

impl StoredHolder {
    /// The holder of a mutex, as a server shows it.
    pub(crate) fn of_mutex(token: Arc<str>, end: Moment, waited_for: bool) -> Self {
        Self { token, kind: Kind::Mutex, end, waited_for, slot: None }
    }
}

/// All holders of one lock.
#[derive(Clone, Default)]
pub(crate) struct Holders {
    /// In the order in which their leases end.
    all: BTreeMap<(Moment, Arc<str>), StoredHolder>,
    ends: BTreeMap<Arc<str>, Moment>,
    /// How many of them hold a permit with each limit.
    limits: BTreeMap<u32, usize>,
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
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The holder whose lease ends first. All others are of the same family.
    pub(crate) fn first(&self) -> Option<&StoredHolder> {
        self.all.first_key_value().map(|(_, holder)| holder)
    }

    /// The holder whose lease ends last.
    pub(super) fn last(&self) -> Option<&StoredHolder> {
        self.all.last_key_value().map(|(_, holder)| holder)
    }

    /// In the order in which their leases end.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StoredHolder> {
        self.all.values()
    }

    pub(crate) fn get(&self, token: &Arc<str>) -> Option<&StoredHolder> {
        self.all.get(&(*self.ends.get(token)?, Arc::clone(token)))
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
        let token = Arc::clone(&holder.token);
        self.ends.insert(Arc::clone(&token), holder.end);
        if let Some(limit) = holder.kind.limit() {
            *self.limits.entry(limit).or_default() += 1;
        }
        self.all.insert((holder.end, token), holder);
    }

    pub(super) fn remove(&mut self, token: &Arc<str>) -> Option<StoredHolder> {
        let end = self.ends.remove(token)?;
        let holder = self.all.remove(&(end, Arc::clone(token)))?;
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

    /// Sets when the lease of a token ends; returns `false` when it has none.
    pub(crate) fn set_end(&mut self, token: &Arc<str>, end: Moment) -> bool {
        let holder = self.remove(token).map(|holder| StoredHolder { end, ..holder });
        holder.map(|holder| self.add(holder)).is_some()
    }

    /// Gives a holder the lowest slot that no other one has, unless it has one.
    pub(super) fn number(&mut self, token: &Arc<str>) {
        let taken: BTreeSet<u32> = self.iter().filter_map(|holder| holder.slot).collect();
        let free = (0..).find(|slot| !taken.contains(slot) || planted!(SlotTwice));
        if let Some(holder) = self.remove(token) {
            self.add(StoredHolder { slot: holder.slot.or(free), ..holder });
        }
    }

    /// Turns the writer's hold into a reader's.
    pub(super) fn downgrade(&mut self, token: &Arc<str>) {
        if let Some(holder) = self.remove(token) {
            self.add(StoredHolder { kind: Kind::Read, ..holder });
        }
    }

    /// Notes that a waiter has arrived.
    pub(super) fn note_waiter(&mut self) {
        self.all.values_mut().for_each(|holder| holder.waited_for = true);
    }

    /// Removes holders whose leases have ended.
    pub(super) fn expire(&mut self, now: Moment) {
        while let Some(first) = self.first().filter(|holder| holder.end <= now) {
            self.remove(&Arc::clone(&first.token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(token: &str, kind: Kind, end: u64) -> StoredHolder {
        StoredHolder {
            token: token.into(),
            kind,
            end: Moment::at_millis(end),
            waited_for: false,
            slot: None,
        }
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
        assert_eq!(holders.first().map(|it| &*it.token), Some("c"));
        assert_eq!(holders.last().map(|it| &*it.token), Some("b"));
        holders.expire(Moment::at_millis(30));
        assert_eq!(tokens(&holders), ["b"]);
        assert!(holders.get(&"a".into()).is_none() && holders.remove(&"c".into()).is_none());
        assert!(holders.remove(&"b".into()).is_some() && holders.is_empty());
        assert!(holders.first().is_none());
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
