//! The table of machines, in shards whose locks are held for a short time, and what is noted of each.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::idle_leases::LingerPauses;
use super::lock_id::{Beside, LockId, NotedBeside};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::names::Names;
use crate::domain::value::StoredValue;
use crate::lock::hold::Hold;
use crate::lock::{Crowd, Heard, LineStanding, LineView, Machine};
use crate::sync::{NonPoisonGuard, NonPoisonMutex};

/// More shards than threads that are likely to collide, and few enough to need little memory. In simulated histories no
/// threads collide, and a look at all shards is a quarter of their time.
const SHARDS: usize = if cfg!(test) { 4 } else { 64 };

/// One shard: some of the machines, and their timers.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// In boxes: a node of the map has room for many, and moves them about.
    residents: BTreeMap<LockId, Box<Resident>>,
    /// The waiters of locks that have a machine for each call.
    lines: BTreeMap<LineKeys, WaitingLine>,
    /// What the machines of a key that have a number count as, in a line or not.
    crowds: BTreeMap<Arc<str>, Crowd>,
    timers: Timers,
    pub(super) linger_pauses: LingerPauses,
}

/// The timers of a shard, by time.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Moment, LockId)>);

impl Shard {
    pub(crate) fn get(&self, id: &LockId) -> Option<&Resident> {
        self.residents.get(id).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: &LockId) -> Option<&mut Resident> {
        self.residents.get_mut(id).map(Box::as_mut)
    }

    /// A machine, which is made if need be, and the timers of the shard.
    pub(crate) fn get_or_create(
        &mut self,
        id: &LockId,
        line: Option<LineKeys>,
    ) -> (&mut Resident, &mut Timers) {
        let resident = self.residents.entry(id.clone());
        let resident = resident.or_insert_with(|| Box::new(Resident::new(line)));
        (resident, &mut self.timers)
    }

    /// The same, unless `makes` forbids to make it.
    pub(super) fn visit_or_create(
        &mut self,
        id: &LockId,
        makes: bool,
        line: Option<LineKeys>,
    ) -> Option<(&mut Resident, &mut Timers)> {
        if makes { Some(self.get_or_create(id, line)) } else { self.visit(id) }
    }

    /// A machine, and the timers of the shard.
    pub(crate) fn visit(&mut self, id: &LockId) -> Option<(&mut Resident, &mut Timers)> {
        Some((self.residents.get_mut(id)?, &mut self.timers))
    }

    /// What a call finds of its line that comes now.
    pub(super) fn line(&self, keys: &LineKeys) -> LineView {
        match self.lines.get(keys) {
            Some(line) if line.is_full() => {
                let is_refused = self.heard_first(keys).is_some_and(|heard| heard.is_refusal());
                LineView::Full { is_refused }
            }
            _ => LineView::HasRoom,
        }
    }

    /// What the first of its line has heard, for a machine that is held back.
    pub(super) fn heard_before(&self, id: &LockId) -> Option<Heard> {
        let resident = self.get(id).filter(|it| it.standing == LineStanding::HeldBack)?;
        self.heard_first(resident.line.as_ref()?)
    }

    fn heard_first(&self, keys: &LineKeys) -> Option<Heard> {
        let number = *self.lines.get(keys)?.asking.first()?;
        self.get(&keys.machine(number)?)?.machine.heard()
    }

    /// A machine has come into its line, or has left it. Returns when the engine has to wake for those that
    /// come forward because of that.
    pub(super) fn change_line(&mut self, id: &LockId, now: Moment) -> Option<Moment> {
        let resident = self.residents.get_mut(id)?;
        resident.standing = resident.machine.standing();
        let before = mem::replace(&mut resident.crowd, resident.machine.crowd());
        let crowd = self.crowds.entry(Arc::clone(&id.main)).or_default();
        crowd.leaves(before);
        crowd.joins(resident.crowd);
        if *crowd == Crowd::default() {
            self.crowds.remove(&id.main);
        }
        let keys = resident.line.clone()?;
        let standing = resident.standing;
        self.lines.entry(keys.clone()).or_default().stand(id.number, standing);
        let mut due = None;
        loop {
            let heard = self.heard_first(&keys);
            let Some(number) = self.lines.get_mut(&keys)?.advance() else { break };
            let next = keys.machine(number)?;
            let Some((resident, timers)) = self.visit(&next) else { continue };
            resident.standing = LineStanding::Asks;
            heard.into_iter().for_each(|heard| resident.machine.hear(heard, now));
            resident.machine.come_forward(now);
            due = timers.settle(&next, resident).into_iter().chain(due).min();
        }
        if self.lines.get(&keys).is_some_and(WaitingLine::is_empty) {
            self.lines.remove(&keys);
        }
        due
    }

    /// Removes a machine that has become useless.
    pub(crate) fn remove(&mut self, id: &LockId) {
        self.residents.remove(id);
    }

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

    /// The calls that wait in all machines of a key.
    pub(super) fn crowd(&self, main: &str) -> Crowd {
        let mut crowd = self.crowds.get(main).copied().unwrap_or_default();
        let pooled = self.get(&LockId::mutex(main));
        crowd.joins(pooled.map(|resident| resident.machine.crowd()).unwrap_or_default());
        crowd
    }

    /// The machines of a key.
    pub(crate) fn of_key(&self, main: &str) -> impl Iterator<Item = &Machine<Handle>> {
        self.residents.range(all_of(main)).map(|(_, resident)| &resident.machine)
    }

    /// A call with `newest` has joined now. Returns the other ones that no later call had followed until then.
    pub(super) fn follow(&mut self, latest: &LockId, now: Moment) -> Vec<LockId> {
        let all = self.residents.range_mut(all_of(&latest.main));
        let older = all.filter(|(id, _)| *id != latest);
        older.filter_map(|(id, it)| it.machine.note_later_call(now).then(|| id.clone())).collect()
    }
}

/// The machines of a key: the one of all calls, and those of single calls.
fn all_of(main: &str) -> RangeInclusive<LockId> {
    let first = LockId::mutex(main);
    let last = LockId { main: Arc::clone(&first.main), number: u64::MAX };
    first..=last
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
        if before != Moment::NEVER && !planted!(TimersKept) {
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

/// A shard, and when its next timer is due.
type SharedShard = (NonPoisonMutex<Shard>, AtomicU64);

/// The machines, in shards, so that callers with different keys rarely wait for the same mutex.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[SharedShard; SHARDS]>,
    pub(super) beside: Beside,
}

impl Table {
    pub(crate) fn new() -> Self {
        let shard = |_| (NonPoisonMutex::default(), AtomicU64::new(u64::MAX));
        let shards = Box::new(std::array::from_fn(shard));
        Self { shards, beside: Beside::default() }
    }

    /// Locks the shard of a key. Nothing slow, and no code of the user, may run while it is locked.
    pub(crate) fn shard(&self, main: &str) -> Locked<'_> {
        // Colliding keys only cost a little waiting, so a hash without a secret is enough.
        let mut hash = DefaultHasher::new();
        main.hash(&mut hash);
        let (shard, earliest) = &self.shards[hash.finish() as usize % SHARDS];
        Locked { shard: shard.lock(), earliest }
    }

    fn shards(&self) -> impl Iterator<Item = &SharedShard> {
        self.shards.iter()
    }

    /// The machines whose timers are due.
    pub(crate) fn due_at(&self, now: Moment) -> Vec<LockId> {
        let mut due = Vec::new();
        for (shard, earliest) in self.shards() {
            if earliest.load(Ordering::Acquire) <= now.as_nanos() {
                Locked { shard: shard.lock(), earliest }.pop_due(now, &mut due);
            }
        }
        due
    }

    /// When the next timer is due.
    pub(crate) fn next_due(&self) -> Moment {
        let earliest = self.shards().map(|(_, earliest)| earliest.load(Ordering::Acquire));
        earliest.min().map_or(Moment::NEVER, Moment::from_nanos)
    }

    /// How many machines are so.
    pub(crate) fn count(&self, is_so: impl Fn(&Machine<Handle>) -> bool) -> usize {
        let each = self.shards().map(|(shard, _)| {
            let shard = shard.lock();
            shard.residents.values().filter(|resident| is_so(&resident.machine)).count()
        });
        each.sum()
    }

    /// The ids of all machines.
    pub(crate) fn ids(&self) -> Vec<LockId> {
        let mut ids = Vec::new();
        for (shard, _) in self.shards() {
            ids.extend(shard.lock().residents.keys().cloned());
        }
        ids
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |shard: &Shard| shard.residents.is_empty() && shard.timers.0.is_empty();
        self.shards().all(|(shard, _)| is_empty(&shard.lock()))
    }
}

#[cfg(test)]
impl Table {
    /// The tokens of idle leases, and since when they are idle.
    pub(crate) fn kept(&self) -> Vec<(Arc<str>, Moment)> {
        let mut kept = Vec::new();
        for (shard, _) in self.shards() {
            let shard = shard.lock();
            kept.extend(shard.residents.values().filter_map(|it| it.machine.kept_since()));
        }
        kept
    }

    /// The tokens that machines have.
    pub(crate) fn tokens(&self) -> Vec<Arc<str>> {
        let mut tokens = Vec::new();
        for (shard, _) in self.shards() {
            let shard = shard.lock();
            tokens.extend(shard.residents.values().filter_map(|it| it.machine.token().cloned()));
            let machines = shard.residents.values().map(|it| &it.machine);
            tokens.extend(machines.flat_map(|machine| machine.lapsed_tokens().cloned()));
        }
        tokens
    }

    /// How many machines there are, timers, and lines of waiters.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let each = self.shards().map(|(shard, _)| {
            let shard = shard.lock();
            let lines = shard.lines.len().max(shard.crowds.len());
            [shard.residents.len(), shard.timers.0.len(), lines]
        });
        each.fold([0; 3], |sum, shard| std::array::from_fn(|at| sum[at] + shard[at]))
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.shards().any(|(shard, _)| shard.is_locked())
    }
}

/// A locked shard. Unlocking it publishes when the next timer of the shard is due.
pub(crate) struct Locked<'a> {
    shard: NonPoisonGuard<'a, Shard>,
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
pub(crate) type Granted = Result<Arc<Hold>, Box<NotGranted>>;

/// What a caller gets in place of the lock.
#[derive(Clone, Debug)]
pub(crate) enum NotGranted {
    Error(LockError),
    /// The value of the call that it has waited for.
    Value(StoredValue),
}

impl From<LockError> for Box<NotGranted> {
    fn from(error: LockError) -> Self {
        Self::new(NotGranted::Error(error))
    }
}

/// How a waiter is notified.
#[derive(Debug)]
pub(crate) struct Handle {
    /// The machine that it was asked of, which takes back what reaches no caller.
    pub(crate) id: LockId,
    pub(crate) answer: oneshot::Sender<Granted>,
}

/// A machine, and the data that is derived from it.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) machine: Machine<Handle>,
    /// When its timer is due; `NEVER` without one.
    pub(super) timer: Moment,
    /// The token by which messages may refer to it.
    pub(crate) indexed: Option<Arc<str>>,
    /// The keys whose line it waits in, if it has a number.
    line: Option<LineKeys>,
    /// Its position in that line.
    standing: LineStanding,
    /// What it counts as among those that wait for its key.
    crowd: Crowd,
    /// The demand by whose other keys it is found, and what it counts as there.
    pub(super) beside: NotedBeside,
    /// The number of its entry in the list of idle leases.
    pub(crate) idle_entry: Option<NonZeroU64>,
    /// The version of the routing that its open question was sent with, when there are several
    /// places.
    pub(crate) asked: u64,
}

impl Resident {
    pub(super) fn new(line: Option<LineKeys>) -> Self {
        Self {
            machine: Machine::new(),
            timer: Moment::NEVER,
            indexed: None,
            line,
            standing: LineStanding::Outside,
            crowd: Crowd::default(),
            beside: None,
            idle_entry: None,
            asked: 0,
        }
    }

    /// Whether it stands elsewhere in its line, or counts as something else, than what was noted.
    pub(super) fn changes_line(&self) -> bool {
        self.machine.standing() != self.standing || self.machine.crowd() != self.crowd
    }
}

/// The keys that the calls of one line wait for: all of them, because a call that waits for other keys as well
/// must not keep back one that needs less.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LineKeys(Arc<[Arc<str>]>);

impl LineKeys {
    pub(super) fn of(demand: &Demand) -> Self {
        Self(demand.names.all().map(Names::shared_main).collect())
    }

    /// A machine of its calls.
    fn machine(&self, number: u64) -> Option<LockId> {
        let main = Arc::clone(self.0.first()?);
        Some(LockId { main, number })
    }
}

/// How many calls of a process ask the server for one lock by separate machines: more than a release
/// lets in at once. Few in tests, so that some are held back.
const MOST_ASK: usize = if cfg!(test) { 2 } else { 32 };

/// The calls of this process that wait for the same keys, by the numbers of their machines, which are in the
/// order of arrival.
#[derive(Debug, Default)]
struct WaitingLine {
    asking: BTreeSet<u64>,
    held_back: BTreeSet<u64>,
}

impl WaitingLine {
    fn is_full(&self) -> bool {
        self.asking.len() + self.held_back.len() >= MOST_ASK
    }

    fn is_empty(&self) -> bool {
        self.asking.is_empty() && self.held_back.is_empty()
    }

    fn stand(&mut self, number: u64, standing: LineStanding) {
        self.asking.remove(&number);
        self.held_back.remove(&number);
        match standing {
            LineStanding::Outside => false,
            LineStanding::Asks => self.asking.insert(number),
            LineStanding::HeldBack => self.held_back.insert(number),
        };
    }

    /// Lets the next one ask, if there is room.
    fn advance(&mut self) -> Option<u64> {
        let has_room = self.asking.len() < MOST_ASK;
        let next = has_room.then(|| self.held_back.pop_first()).flatten()?;
        self.asking.insert(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_has_rung_is_not_set_any_more() {
        let (mut shard, id, at) = (Shard::default(), LockId::mutex("a"), Moment::from_nanos(1_000));
        let (resident, timers) = shard.get_or_create(&id, None);
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
            shard.get_or_create(&LockId { main: main.into(), number }, None);
        }
        assert_eq!(shard.of_key("a").count(), 3);
    }
}
