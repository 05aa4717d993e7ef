//! The table of machines, in shards whose locks are held for a short time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cache_padded::CachePadded;
use super::key_entry::KeyEntry;
use super::linger_pauses::LingerPauses;
use super::lock_id::LockId;
use super::resident::{Handle, Resident};
use crate::domain::clock::Moment;
use crate::domain::key_hashes::{KeyHashes, open_hash};
use crate::lock::Machine;

/// More shards than threads that are likely to collide, and not so many that they need much memory.
const SHARDS: usize = 64;

/// A timer that is due later than this is not set at once: most locks are released long before
/// their timers are due, and a timer for each acquisition cost a tenth of the throughput.
const SOON: Duration = Duration::from_secs(1);

/// When such a timer is set, if the lock is still held.
const DEFERRED: Duration = Duration::from_millis(500);

/// A timer that would ring so long before anything is due is moved. Others ring for nothing, which is
/// cheaper than to move a timer with each step.
const EARLY: Duration = Duration::from_millis(100);

/// Deferred timers are set together, in steps of 2^24 nanoseconds, some 17 ms.
const TIMER_GRID: u32 = 24;

/// One shard: some of the machines, and their timers.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    entries: HashMap<Arc<str>, KeyEntry, KeyHashes>,
    agenda: Agenda,
    /// The number of the next resident.
    next: u64,
    /// One that was removed, to be used for the next machine.
    spare: Option<Box<Resident>>,
    pub(super) linger_pauses: LingerPauses,
}

/// The timers of a shard.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Ordered by time, then by the number of the resident, which is cheaper to compare than the
    /// id.
    timers: BTreeMap<(Moment, u64), LockId>,
    deferred: VecDeque<DeferredTimers>,
}

/// Timers that are set at one time, if their locks are still held then.
#[derive(Debug)]
struct DeferredTimers {
    at: Moment,
    ids: Vec<LockId>,
}

/// A timer that was taken out because it is due.
#[derive(Debug)]
struct DueTimer {
    at: Moment,
    id: LockId,
}

impl Shard {
    pub(crate) fn get(&self, id: &LockId) -> Option<&Resident> {
        self.entries.get(&id.main)?.get(id.number)
    }

    pub(crate) fn get_mut(&mut self, id: &LockId) -> Option<&mut Resident> {
        self.entries.get_mut(&id.main)?.get_mut(id.number)
    }

    /// A machine, which is made if need be, and the timers of the shard.
    pub(crate) fn get_or_create(&mut self, id: &LockId) -> (&mut Resident, &mut Agenda) {
        let entry = self.entries.entry(Arc::clone(&id.main)).or_default();
        let (next, spare) = (&mut self.next, &mut self.spare);
        let make = || {
            *next += 1;
            let mut resident = spare.take().unwrap_or_else(|| Box::new(Resident::new()));
            resident.number = *next;
            resident
        };
        (entry.get_or_make(id.number, make), &mut self.agenda)
    }

    /// A machine, and the timers of the shard.
    pub(crate) fn visit(&mut self, id: &LockId) -> Option<(&mut Resident, &mut Agenda)> {
        let Self { entries, agenda, .. } = self;
        Some((entries.get_mut(&id.main)?.get_mut(id.number)?, agenda))
    }

    /// A machine came into the server's queue, or left it. Returns when the engine has to wake for one
    /// that comes to the front because of that.
    pub(crate) fn change_line(&mut self, id: &LockId, now: Moment) -> Option<Moment> {
        let number = self.entries.get_mut(&id.main)?.change_line(id.number)?;
        let id = LockId { main: Arc::clone(&id.main), number };
        let (resident, agenda) = self.visit(&id)?;
        resident.machine.come_forward(now);
        agenda.settle(&id, resident, now)
    }

    /// Removes a machine that is not needed any more.
    pub(crate) fn remove(&mut self, id: &LockId) {
        let Some(mut entry) = self.entries.remove(&id.main) else { return };
        let removed = entry.remove(id.number);
        if !entry.is_empty() {
            self.entries.insert(Arc::clone(&id.main), entry);
        }
        self.spare = removed.map(Resident::reset);
    }
}

impl Agenda {
    /// Updates the timer of a machine. Returns when the engine has to wake for it, if that is sooner
    /// than its present timer.
    pub(crate) fn settle(
        &mut self,
        id: &LockId,
        resident: &mut Resident,
        now: Moment,
    ) -> Option<Moment> {
        if resident.machine.is_idle() {
            self.unset(resident);
            return None;
        }
        if planted!(NoTimer) && resident.machine.awaited().is_some() {
            return None;
        }
        let due = resident.machine.due();
        if due == Moment::NEVER || resident.timer <= due && due < resident.timer.after(EARLY) {
            return None;
        }
        let is_first = resident.timer == Moment::NEVER && !resident.has_been_due;
        if is_first && due > now.after(SOON) {
            if resident.is_deferred {
                return None;
            }
            resident.is_deferred = true;
            self.defer(now.after(DEFERRED).at_or_before(TIMER_GRID, 0), id);
            return None;
        }
        self.unset(resident);
        resident.timer = due;
        self.timers.insert((due, resident.number), id.clone());
        Some(due)
    }

    fn defer(&mut self, at: Moment, id: &LockId) {
        match self.deferred.back_mut().filter(|last| last.at == at) {
            // A key that is used again and again needs one entry for all its locks of these 17 ms.
            Some(last) if last.ids.last() == Some(id) => {}
            Some(last) => last.ids.push(id.clone()),
            None => self.deferred.push_back(DeferredTimers { at, ids: vec![id.clone()] }),
        }
    }

    fn unset(&mut self, resident: &mut Resident) {
        let at = mem::replace(&mut resident.timer, Moment::NEVER);
        if at != Moment::NEVER {
            self.timers.remove(&(at, resident.number));
        }
    }

    /// When the next timer is due.
    fn due(&self) -> Moment {
        let timer = self.timers.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        self.deferred.front().map_or(timer, |deferred| timer.min(deferred.at))
    }
}

impl Shard {
    /// Takes out the timers that are due.
    fn pop_due(&mut self, now: Moment, due: &mut Vec<DueTimer>) {
        self.end_deferral(now);
        while let Some(first) = self.agenda.timers.first_entry()
            && first.key().0 <= now
        {
            let ((at, _), id) = first.remove_entry();
            due.push(DueTimer { at, id });
        }
    }

    /// The timer of a machine was taken out, unless another one has been set meanwhile.
    fn has_rung(&mut self, timer: &DueTimer) {
        if let Some(resident) = self.get_mut(&timer.id) {
            if resident.timer == timer.at {
                (resident.timer, resident.has_been_due) = (Moment::NEVER, true);
            }
            resident.machine.bring_near();
        }
    }

    /// Sets the timers that were deferred.
    fn end_deferral(&mut self, now: Moment) {
        while self.agenda.deferred.front().is_some_and(|next| next.at <= now) {
            let Some(deferred) = self.agenda.deferred.pop_front() else { return };
            deferred.ids.into_iter().for_each(|id| self.set_deferred(id));
        }
    }

    fn set_deferred(&mut self, id: LockId) {
        let Some(resident) = self.get_mut(&id) else { return };
        resident.is_deferred = false;
        let due = resident.machine.due();
        if resident.timer == Moment::NEVER && due != Moment::NEVER {
            resident.timer = due;
            let number = resident.number;
            self.agenda.timers.insert((due, number), id);
        }
    }

    /// The machines of a key.
    pub(crate) fn of_key(&self, main: &str) -> impl Iterator<Item = &Machine<Handle>> {
        let entry = self.entries.get(main).into_iter();
        entry.flat_map(KeyEntry::iter).map(|(_, resident)| &resident.machine)
    }

    fn ids(&self) -> Vec<LockId> {
        let mut ids = Vec::with_capacity(self.entries.len());
        for (main, entry) in &self.entries {
            let id = |number| LockId { main: Arc::clone(main), number };
            ids.extend(entry.iter().map(|(number, _)| id(number)));
        }
        ids
    }
}

/// A shard, and when its next timer is due.
type SharedShard = (Mutex<Shard>, AtomicU64);

/// The machines, in shards, so that callers with different keys rarely wait for the same mutex.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[CachePadded<SharedShard>; SHARDS]>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let shard = |_| CachePadded::new((Mutex::default(), AtomicU64::new(u64::MAX)));
        Self { shards: Box::new(std::array::from_fn(shard)) }
    }

    /// Locks the shard of a key. Nothing slow, and no code of the user, may run while it is locked.
    pub(crate) fn shard(&self, main: &str) -> Locked<'_> {
        // Colliding keys only cost a little waiting, so a hash without a secret is enough.
        let (shard, earliest) = &*self.shards[open_hash(main) as usize % SHARDS];
        Locked { shard: lock(shard), earliest }
    }

    fn shards(&self) -> impl Iterator<Item = &SharedShard> {
        self.shards.iter().map(|shard| &**shard)
    }

    /// The machines whose timers are due.
    ///
    /// Those of many locks are far from the processor: all others were renewed since. Waiting for them one
    /// by one was a third of what a renewal costs. Loops that do little else wait for several at once.
    pub(crate) fn due_at(&self, now: Moment) -> Vec<LockId> {
        let mut due = Vec::new();
        for (shard, earliest) in self.shards() {
            if earliest.load(Ordering::Acquire) > now.as_nanos() {
                continue;
            }
            Locked { shard: lock(shard), earliest }.pop_due(now, &mut due);
        }
        let first_bytes = due.iter().filter_map(|timer| timer.id.main.as_bytes().first());
        hint::black_box(first_bytes.fold(0, |sum, byte| sum ^ byte));
        for timer in &due {
            self.shard(&timer.id.main).has_rung(timer);
        }
        due.into_iter().map(|timer| timer.id).collect()
    }

    /// When the next timer is due.
    pub(crate) fn next_due(&self) -> Moment {
        let earliest = self.shards().map(|(_, earliest)| earliest.load(Ordering::Acquire));
        earliest.min().map_or(Moment::NEVER, Moment::from_nanos)
    }

    /// The ids of all machines.
    pub(crate) fn ids(&self) -> Vec<LockId> {
        self.shards().flat_map(|(shard, _)| lock(shard).ids()).collect()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |shard: &Shard| shard.entries.is_empty() && shard.agenda.timers.is_empty();
        self.shards().all(|(shard, _)| is_empty(&lock(shard)))
    }
}

#[cfg(test)]
impl Table {
    /// The tokens of idle leases, and since when they are idle.
    pub(crate) fn kept(&self) -> Vec<(Arc<str>, Moment)> {
        let mut kept = Vec::new();
        for (shard, _) in self.shards() {
            let shard = lock(shard);
            let residents = shard.entries.values().flat_map(KeyEntry::iter);
            kept.extend(residents.filter_map(|(_, it)| it.machine.kept_since()));
        }
        kept
    }

    /// The tokens that machines have.
    pub(crate) fn tokens(&self) -> Vec<Arc<str>> {
        let mut tokens = Vec::new();
        for (shard, _) in self.shards() {
            for entry in lock(shard).entries.values() {
                tokens.extend(entry.iter().filter_map(|(_, it)| it.machine.token().cloned()));
            }
        }
        tokens
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.shards().any(|(shard, _)| shard.try_lock().is_err())
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A locked shard. Unlocking it publishes when the next timer of the shard is due.
pub(crate) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    earliest: &'a AtomicU64,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.earliest.store(self.shard.agenda.due().as_nanos(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Moment = Moment::from_nanos(1_000);
    const LATER: Moment = Moment::from_nanos(2_000);

    /// A machine whose timer was due and was taken out.
    fn popped(shard: &mut Shard) -> DueTimer {
        let id = LockId::mutex("a");
        let (resident, agenda) = shard.get_or_create(&id);
        resident.timer = DUE;
        agenda.timers.insert((DUE, resident.number), id);
        let mut due = Vec::new();
        shard.pop_due(DUE, &mut due);
        due.pop().unwrap()
    }

    fn timer(shard: &Shard, id: &LockId) -> (Moment, bool) {
        shard.get(id).map(|resident| (resident.timer, resident.has_been_due)).unwrap()
    }

    #[test]
    fn a_timer_that_has_rung_is_not_set_any_more() {
        let mut shard = Shard::default();
        let popped = popped(&mut shard);
        assert_eq!(timer(&shard, &popped.id), (DUE, false), "others may step it meanwhile");
        shard.has_rung(&popped);
        assert_eq!(timer(&shard, &popped.id), (Moment::NEVER, true));
    }

    #[test]
    fn a_timer_that_was_set_while_the_last_one_rang_stays() {
        let mut shard = Shard::default();
        let popped = popped(&mut shard);
        let (resident, agenda) = shard.visit(&popped.id).unwrap();
        resident.timer = LATER;
        agenda.timers.insert((LATER, resident.number), popped.id.clone());
        shard.has_rung(&popped);
        assert_eq!(timer(&shard, &popped.id).0, LATER);
        assert_eq!(shard.agenda.due(), LATER);
    }
}
