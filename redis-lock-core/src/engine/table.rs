//! The table of machines, in shards whose locks are held for a short time, and what is noted of each.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::idle_leases::LingerPauses;
use super::lock_id::LockId;
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::lock::hold::Hold;
use crate::lock::{Effects, Env, Machine, QueuePlace, Rank};
use crate::store::wire::contained;
use crate::{LockError, LossReason};

/// More shards than threads that are likely to collide, and not so many that they need much memory.
const SHARDS: usize = 64;

/// One shard: some of the machines, and their timers.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    residents: BTreeMap<LockId, Resident>,
    /// The waiters of locks that several can hold.
    lines: BTreeMap<Arc<str>, WaitingLine>,
    timers: Timers,
    pub(super) linger_pauses: LingerPauses,
}

/// The timers of a shard, by time.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Moment, LockId)>);

impl Shard {
    pub(crate) fn get(&self, id: &LockId) -> Option<&Resident> {
        self.residents.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &LockId) -> Option<&mut Resident> {
        self.residents.get_mut(id)
    }

    /// A machine, which is made if need be, and the timers of the shard.
    pub(crate) fn get_or_create(&mut self, id: &LockId) -> (&mut Resident, &mut Timers) {
        let resident = self.residents.entry(id.clone()).or_insert_with(Resident::new);
        (resident, &mut self.timers)
    }

    /// A machine, and the timers of the shard.
    pub(crate) fn visit(&mut self, id: &LockId) -> Option<(&mut Resident, &mut Timers)> {
        Some((self.residents.get_mut(id)?, &mut self.timers))
    }

    /// A machine came into the server's queue, left it, or came into it again. Returns when the engine
    /// has to wake for one that comes to the front because of that.
    pub(crate) fn change_line(&mut self, id: &LockId, now: Moment) -> Option<Moment> {
        let line = self.lines.entry(Arc::clone(&id.main)).or_default();
        let resident = self.residents.get_mut(id)?;
        resident.place = resident.machine.place();
        let left = resident.spot.take();
        let forward = left.and_then(|spot| line.leave(id.number, spot));
        resident.spot = resident.place.map(|_| line.join(id.number));
        if line.is_empty() {
            self.lines.remove(&id.main);
        }
        let id = LockId { main: Arc::clone(&id.main), number: forward? };
        let (resident, timers) = self.visit(&id)?;
        resident.spot = Some(Spot::Front);
        resident.machine.come_forward(now);
        timers.settle(&id, resident)
    }

    /// Removes a machine that is not needed any more.
    pub(crate) fn remove(&mut self, id: &LockId) {
        self.residents.remove(id);
    }
}

impl Timers {
    /// Updates the timer of a machine. Returns when the engine has to wake for it, if that has changed.
    pub(crate) fn settle(&mut self, id: &LockId, resident: &mut Resident) -> Option<Moment> {
        if planted!(NoTimer) && resident.machine.awaited().is_some() {
            return None;
        }
        let due = resident.machine.due();
        if due == resident.timer {
            return None;
        }
        let before = mem::replace(&mut resident.timer, due);
        if before != Moment::NEVER {
            self.0.remove(&(before, id.clone()));
        }
        if due == Moment::NEVER {
            return None;
        }
        self.0.insert((due, id.clone()));
        Some(due)
    }

    /// When the next timer is due.
    fn due(&self) -> Moment {
        self.0.first().map_or(Moment::NEVER, |(at, _)| *at)
    }
}

impl Shard {
    /// Takes out the timers that are due.
    fn pop_due(&mut self, now: Moment, due: &mut Vec<LockId>) {
        while self.timers.due() <= now
            && let Some((_, id)) = self.timers.0.pop_first()
        {
            if let Some(resident) = self.residents.get_mut(&id) {
                resident.timer = Moment::NEVER;
            }
            due.push(id);
        }
    }

    /// The machines of a key.
    pub(crate) fn of_key(&self, main: &str) -> impl Iterator<Item = &Machine<Handle>> {
        let first = LockId::mutex(main);
        let last = LockId { main: Arc::clone(&first.main), number: u64::MAX };
        self.residents.range(first..=last).map(|(_, resident)| &resident.machine)
    }
}

/// A shard, and when its next timer is due.
type SharedShard = (Mutex<Shard>, AtomicU64);

/// The machines, in shards, so that callers with different keys rarely wait for the same mutex.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[SharedShard; SHARDS]>,
    /// Whether locks of several keys were ever asked for.
    pub(super) has_several: AtomicBool,
}

impl Table {
    pub(crate) fn new() -> Self {
        let shard = |_| (Mutex::default(), AtomicU64::new(u64::MAX));
        let shards = Box::new(std::array::from_fn(shard));
        Self { shards, has_several: AtomicBool::new(false) }
    }

    /// Locks the shard of a key. Nothing slow, and no code of the user, may run while it is locked.
    pub(crate) fn shard(&self, main: &str) -> Locked<'_> {
        // Colliding keys only cost a little waiting, so a hash without a secret is enough.
        let mut hash = DefaultHasher::new();
        main.hash(&mut hash);
        let (shard, earliest) = &self.shards[hash.finish() as usize % SHARDS];
        Locked { shard: lock(shard), earliest }
    }

    fn shards(&self) -> impl Iterator<Item = &SharedShard> {
        self.shards.iter()
    }

    /// The machines whose timers are due.
    pub(crate) fn due_at(&self, now: Moment) -> Vec<LockId> {
        let mut due = Vec::new();
        for (shard, earliest) in self.shards() {
            if earliest.load(Ordering::Acquire) <= now.as_nanos() {
                Locked { shard: lock(shard), earliest }.pop_due(now, &mut due);
            }
        }
        due
    }

    /// When the next timer is due.
    pub(crate) fn next_due(&self) -> Moment {
        let earliest = self.shards().map(|(_, earliest)| earliest.load(Ordering::Acquire));
        earliest.min().map_or(Moment::NEVER, Moment::from_nanos)
    }

    /// The ids of all machines.
    /// How many machines are so.
    pub(crate) fn count(&self, is_so: fn(&Machine<Handle>) -> bool) -> usize {
        let each = self.shards().map(|(shard, _)| {
            let shard = lock(shard);
            shard.residents.values().filter(|resident| is_so(&resident.machine)).count()
        });
        each.sum()
    }

    pub(crate) fn ids(&self) -> Vec<LockId> {
        let mut ids = Vec::new();
        for (shard, _) in self.shards() {
            ids.extend(lock(shard).residents.keys().cloned());
        }
        ids
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |shard: &Shard| shard.residents.is_empty() && shard.timers.0.is_empty();
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
            kept.extend(shard.residents.values().filter_map(|it| it.machine.kept_since()));
        }
        kept
    }

    /// The tokens that machines have.
    pub(crate) fn tokens(&self) -> Vec<Arc<str>> {
        let mut tokens = Vec::new();
        for (shard, _) in self.shards() {
            let shard = lock(shard);
            tokens.extend(shard.residents.values().filter_map(|it| it.machine.token().cloned()));
            let machines = shard.residents.values().map(|it| &it.machine);
            tokens.extend(machines.flat_map(|machine| machine.lapsed_tokens().cloned()));
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
        self.earliest.store(self.shard.timers.due().as_nanos(), Ordering::Release);
    }
}

/// What a caller waits for. The error is in a box, because it is large and rare.
pub(crate) type Granted = Result<Arc<Hold>, Box<LockError>>;

/// How a waiter is notified.
pub(crate) type Handle = oneshot::Sender<Granted>;

/// A machine, and the data that is derived from it.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) machine: Machine<Handle>,
    /// When its timer is due; `NEVER` without one.
    pub(super) timer: Moment,
    /// The token by which messages may refer to it.
    pub(crate) indexed: Option<Arc<str>>,
    /// Its place in the server's queue, if it has one.
    pub(super) place: Option<QueuePlace>,
    /// Where it stands among the machines of this process that are in that queue.
    pub(super) spot: Option<Spot>,
    /// The number of its entry in the list of idle leases.
    pub(crate) idle_entry: Option<NonZeroU64>,
    /// The version of the routing that its open question was sent with, when there are several
    /// places.
    pub(crate) asked: u64,
}

impl Resident {
    pub(super) fn new() -> Self {
        Self {
            machine: Machine::new(),
            timer: Moment::NEVER,
            indexed: None,
            place: None,
            spot: None,
            idle_entry: None,
            asked: 0,
        }
    }

    /// A bug made the machine panic. What it knew may be wrong, so its hold ends as lost, and those who
    /// wait are refused.
    pub(super) fn fail(&mut self, fault: &Fault, env: &Env<'_>, out: &mut Effects<Handle>) {
        let error = LockError::backend(None, fault);
        let reason = LossReason::Removed { because: Some(fault.what.clone()) };
        if contained(|| self.machine.close(&error, &reason, env, out)).is_err() {
            self.machine = Machine::new();
        }
    }

    /// Where it stands among the machines of this process for the same key.
    pub(super) fn rank(&self, id: &LockId) -> Rank {
        match self.spot {
            _ if !id.has_own_machine() => Rank::Alone,
            Some(Spot::Behind(_)) => Rank::Behind,
            Some(Spot::Front) | None => Rank::Front,
        }
    }

    /// Whether it has another place in the server's queue than what was noted, or none any more.
    pub(super) fn changes_line(&self) -> bool {
        self.machine.place() != self.place
    }
}

/// So many waiters look often: more than a release lets in at once, so that whoever is let in next is
/// among them even if the message is lost. Few in tests, so that some waiters are behind.
const FRONT: usize = if cfg!(test) { 2 } else { 32 };

/// Where a waiter stands among those of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    Front,
    /// The others are let in before it. It joined as the one with this number.
    Behind(u64),
}

/// The waiters of this process for a lock, by the numbers of their machines. Each of them is in the
/// server's queue.
///
/// The numbers of machines say who asked first. Where that was refused at first, each queued when it
/// tried again, so the order of the queue is that in which the answers said so.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    front: BTreeSet<u64>,
    /// In the order in which they joined.
    behind: BTreeMap<u64, u64>,
    /// How many have joined behind.
    joined: u64,
}

impl WaitingLine {
    pub(super) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.behind.is_empty()
    }

    pub(super) fn join(&mut self, number: u64) -> Spot {
        if self.front.len() < FRONT {
            self.front.insert(number);
            return Spot::Front;
        }
        self.joined += 1;
        self.behind.insert(self.joined, number);
        Spot::Behind(self.joined)
    }

    /// Takes out a waiter. Returns the one that comes to the front for it.
    pub(super) fn leave(&mut self, number: u64, spot: Spot) -> Option<u64> {
        if let Spot::Behind(joined) = spot {
            self.behind.remove(&joined);
            return None;
        }
        self.front.remove(&number);
        let (_, next) = self.behind.pop_first()?;
        self.front.insert(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_has_rung_is_not_set_any_more() {
        let (mut shard, id, at) = (Shard::default(), LockId::mutex("a"), Moment::from_nanos(1_000));
        let (resident, timers) = shard.get_or_create(&id);
        resident.timer = at;
        timers.0.insert((at, id.clone()));
        let mut due = Vec::new();
        shard.pop_due(Moment::from_nanos(999), &mut due);
        assert_eq!((&due, shard.timers.due()), (&vec![], at));
        shard.pop_due(at, &mut due);
        assert_eq!((due, shard.timers.due()), (vec![id.clone()], Moment::NEVER));
        assert_eq!(shard.get(&id).map(|resident| resident.timer), Some(Moment::NEVER));
    }

    #[test]
    fn the_machines_of_a_key_are_all_of_its_and_no_others() {
        let mut shard = Shard::default();
        for (main, number) in [("a", 0), ("a", 7), ("a", u64::MAX), ("b", 0), ("", 1), ("a\0", 0)] {
            shard.get_or_create(&LockId { main: main.into(), number });
        }
        assert_eq!(shard.of_key("a").count(), 3);
    }
}

#[cfg(test)]
mod waiting_line_tests {
    use super::Spot::{Behind, Front};
    use super::*;

    #[test]
    fn the_first_of_those_behind_comes_to_the_front_when_one_of_these_leaves() {
        let mut line = WaitingLine::default();
        assert_eq!([1, 2].map(|number| line.join(number)), [Front; 2]);
        assert_eq!([3, 4, 5].map(|number| line.join(number)), [Behind(1), Behind(2), Behind(3)]);
        assert_eq!(line.leave(3, Behind(1)), None, "it was behind itself");
        assert_eq!([1, 4, 2].map(|number| line.leave(number, Front)), [Some(4), Some(5), None]);
        assert_eq!(line.join(6), Front);
        assert_eq!([5, 6].map(|number| line.leave(number, Front)), [None; 2]);
        assert!(line.front.is_empty() && line.behind.is_empty());
    }

    #[test]
    fn whoever_has_queued_later_comes_later_though_it_asked_before() {
        let mut line = WaitingLine::default();
        assert_eq!([7, 9].map(|number| line.join(number)), [Front; 2]);
        assert_eq!([8, 1, 2].map(|number| line.join(number)), [Behind(1), Behind(2), Behind(3)]);
        assert_eq!(line.leave(1, Behind(2)), None);
        assert_eq!(line.join(1), Behind(4), "it has queued again");
        assert_eq!([9, 7, 8].map(|number| line.leave(number, Front)), [8, 2, 1].map(Some));
    }
}
