//! The clocks of servers. What stands at a key ends by the clock of the node that has it, which may jump,
//! and another node may have another time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::clock::START;
use super::server::{SimulatedServer, nanos};
use crate::domain::clock::Moment;
use crate::domain::mark::Mark;
use crate::domain::names::Names;
use crate::store::memory::entry::Entry;
use crate::store::memory::holders::StoredHolder;

/// Something of a key that ends at some time.
enum TimedPart<'a> {
    /// A lease, and whether its end stands in the value.
    Lease(bool),
    Place,
    Queue,
    Fence,
    Tombstone(&'a Arc<str>),
}

/// What another clock tells the time of.
#[derive(Clone, Copy)]
pub(super) enum Retold {
    /// All, since all ends are times of the clock.
    All,
    /// What stands in values. Keys themselves were passed on with the time that they had left.
    Values,
}

fn later(end: Moment, by: i64) -> Moment {
    if end == Moment::NEVER {
        end
    } else {
        Moment::from_nanos(end.as_nanos().saturating_add_signed(by))
    }
}

/// Sets the ends of some of what stands at a key to later, or sooner.
fn put_off(entry: &mut Entry, by: i64, is_meant: &dyn Fn(&TimedPart<'_>) -> bool) {
    let leases: Vec<_> = entry.holders.iter().map(|it| (Arc::clone(&it.token), it.end)).collect();
    for (token, end) in leases {
        let in_value = entry.holders.get(&token).is_some_and(|it| !it.kind.is_value());
        if is_meant(&TimedPart::Lease(in_value)) {
            entry.holders.set_end(&token, later(end, by));
        }
    }
    for waiter in &mut entry.queue {
        if is_meant(&TimedPart::Place) {
            waiter.until = later(waiter.until, by);
        }
    }
    if is_meant(&TimedPart::Queue) {
        entry.queue_end = entry.queue_end.map(|end| later(end, by));
    }
    if let Some(last) = entry.fence.as_mut().filter(|_| is_meant(&TimedPart::Fence)) {
        last.until = later(last.until, by);
    }
    for (token, tombstone) in &mut entry.tombstones {
        if is_meant(&TimedPart::Tombstone(token)) {
            tombstone.until = later(tombstone.until, by);
        }
    }
}

impl SimulatedServer {
    /// How far the clock of the node that has a key is ahead.
    pub(super) fn fast(&self, key: &str) -> i64 {
        self.jumped + self.ahead.get(key).copied().unwrap_or(0)
    }

    /// What the clock of the only node shows.
    pub(super) fn clock(&self, now: u64) -> Moment {
        Moment::from_nanos((START + now).saturating_add_signed(self.jumped))
    }

    /// What the clock of the node that has a key shows.
    pub(super) fn clock_at(&self, key: &str, now: u64) -> Moment {
        Moment::from_nanos((START + now).saturating_add_signed(self.fast(key)))
    }

    /// The clocks of all nodes are set forward or back.
    pub(super) fn jump(&mut self, forward: bool, by: u64, now: u64) {
        if forward {
            self.excuse_all(now);
            // Tombstones, which refuse late acquisitions, end sooner as well.
            self.tokens.values_mut().for_each(|note| note.undone_at = None);
        }
        if !forward {
            self.tokens
                .values_mut()
                .filter(|it| it.kept_until > 0)
                .for_each(|it| it.kept_until += by);
            let ends = self.meant_ends(now);
            self.stay_beyond(ends);
        }
        let by = i64::try_from(by).unwrap_or(0);
        self.jumped += if forward { by } else { -by };
        let keys: Vec<_> = self.state.entries.keys().cloned().collect();
        for key in keys {
            // What has expired and was looked at does not come back, as the record has it.
            self.show(&Names::new("lock", key.clone()), now);
            self.look_back(&key, now, None);
        }
    }

    /// Another clock, which is so far ahead of the one before, tells the time of what stands at these parts of
    /// a key.
    pub(super) fn tell_by(
        &mut self,
        key: &str,
        is_part: &dyn Fn(&str) -> bool,
        (ahead, told): (i64, Retold),
        now: u64,
    ) {
        let (names, clock) = (Names::new("lock", key), self.clock_at(key, now));
        let ends = self.meant_ends(now);
        let Some(entry) = self.state.entries.get_mut(key).filter(|_| ahead != 0) else { return };
        let is_meant = |ending: &TimedPart<'_>| {
            let is_told = |in_value: bool| in_value || matches!(told, Retold::All);
            match ending {
                TimedPart::Lease(in_value) => is_told(*in_value) && is_part(names.main()),
                TimedPart::Place => is_part(&names.waiters()),
                TimedPart::Queue => is_told(false) && is_part(&names.queue()),
                TimedPart::Fence => is_told(false) && is_part(&names.fence()),
                TimedPart::Tombstone(token) => is_told(false) && is_part(&names.tombstone(token)),
            }
        };
        let is_touched = |it: &&StoredHolder| {
            (it.end > clock || ahead < 0) && is_meant(&TimedPart::Lease(!it.kind.is_value()))
        };
        let touched: BTreeSet<_> =
            entry.holders.iter().filter(is_touched).map(|it| Arc::clone(&it.token)).collect();
        let has_places = is_meant(&TimedPart::Place);
        let places = entry.queue.iter().filter(|_| has_places).map(|it| Arc::clone(&it.token));
        let places: BTreeSet<_> = places.collect();
        let refused = entry.tombstones.keys().filter(|it| is_meant(&TimedPart::Tombstone(it)));
        let refused: Vec<_> = refused.cloned().collect();
        let last = entry.holders.iter().map(|it| it.end).max();
        put_off(entry, -ahead, &is_meant);
        if let (Retold::Values, Some(last)) = (told, last) {
            // A key that was passed on goes when it would have gone.
            for token in &touched {
                let end = entry.holders.get(token).map_or(last, |it| it.end.min(last));
                entry.holders.set_end(token, end);
            }
        }
        if ahead > 0 {
            touched.iter().for_each(|token| self.note(token).is_excused = true);
            refused.iter().for_each(|token| self.note(token).undone_at = None);
        } else {
            for token in &touched {
                let marked = Mark::read(token).map(|mark| Arc::clone(mark.token.wire()));
                for token in [token].into_iter().chain(&marked) {
                    let kept = &mut self.note(token).kept_until;
                    *kept += if *kept > 0 { ahead.unsigned_abs() } else { 0 };
                }
            }
            let stays =
                |(token, _): &(Arc<str>, u64)| touched.contains(token) || places.contains(token);
            self.stay_beyond(ends.into_iter().filter(stays).collect());
        }
        self.look_back(key, now, None);
    }

    /// Times at a key are those of a clock that is so far ahead. Nothing ends at another time because of that.
    pub(super) fn note_clock(&mut self, key: &str, ahead: i64) {
        let before = self.ahead.insert(key.to_owned(), ahead).unwrap_or(0);
        if let Some(entry) = self.state.entries.get_mut(key).filter(|_| before != ahead) {
            put_off(entry, ahead - before, &|_| true);
        }
    }

    /// When what a token has, or waits for, ends at last.
    fn meant_ends(&self, now: u64) -> BTreeMap<Arc<str>, u64> {
        let mut ends: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for (key, entry) in &self.state.entries {
            let clock = self.clock_at(key, now);
            let holders = entry.holders.iter().map(|it| (&it.token, it.end));
            let waiters = entry.queue.iter().map(|it| (&it.token, it.until));
            for (token, end) in holders.chain(waiters).filter(|(_, end)| *end != Moment::NEVER) {
                let end = now.saturating_add(nanos(end.since(clock)));
                let last = ends.entry(Arc::clone(token)).or_default();
                *last = end.max(*last);
            }
        }
        ends
    }

    /// Whatever stands there now ends later than those who wrote it meant.
    fn stay_beyond(&mut self, ends: BTreeMap<Arc<str>, u64>) {
        for (token, end) in ends {
            self.note(&token).meant_to_end.get_or_insert(end);
        }
    }

    pub(super) fn excuse_all(&mut self, now: u64) {
        let present: Vec<_> =
            self.present(now).into_iter().map(|(_, token)| Arc::clone(token)).collect();
        for token in present {
            self.note(&token).is_excused = true;
        }
    }
}
