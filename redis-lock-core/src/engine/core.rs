//! The state that callers, the engine's thread and reading tasks share, and the only way to change
//! a machine.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use tokio::sync::oneshot;

use super::engine_waker::EngineWaker;
use super::idle_leases::{IdleLeases, InUseAnswers};
use super::lifecycle::Lifecycle;
use super::lock_id::LockId;
use super::notice_list::NoticeList;
use super::outages::Outages;
use super::path::{After, QueueEntry, Results, Told};
use super::places::{Place, PlaceId, Places};
use super::reaper::Reaper;
use super::released::{Released, Search};
use super::runtime::RuntimeId;
use super::table::{Handle, LineKeys, Resident, Shard, Table};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::lock::{Effects, Env, Later, LineView, Machine, PendingReleases};
use crate::observe;
use crate::observe::Observation;
use crate::store::wire::contained;
use crate::store::{Answer, Command};
use crate::sync::NonPoisonMutex;

/// The running state of one `Locks`: machines, places, and tokens that have to be released.
pub(crate) struct Core {
    pub(crate) table: Table,
    pub(crate) manager: Arc<str>,
    pub(crate) places: Places,
    pub(crate) waker: EngineWaker,
    pub(crate) notices: NoticeList<Notice>,
    pub(super) reaper: NonPoisonMutex<Reaper>,
    pub(super) pending: Arc<PendingReleases>,
    pub(super) released: NonPoisonMutex<Released>,
    pub(super) search: NonPoisonMutex<Search>,
    pub(super) outages: Outages,
    pub(crate) idle: IdleLeases,
    pub(super) in_use_answers: InUseAnswers,
    /// Finds the machine of a token that may be in the server's queue, and so in a message.
    pub(super) index: NonPoisonMutex<HashMap<Arc<str>, LockId>>,
    numbers: AtomicU64,
    pub(super) life: Lifecycle,
    /// The process that it belongs to.
    process: u32,
    /// A reference to itself, for tasks and threads that it starts.
    pub(super) me: Weak<Self>,
    /// How often its thread panics, as a bug in the engine would make it.
    #[cfg(test)]
    pub(super) crashes: std::sync::atomic::AtomicU8,
}

/// Something that runs the user's code, such as a waker, and drops what that holds. Subscribers have a separate
/// thread.
///
/// No notice runs while a mutex of the engine is locked, and none runs on the engine's thread. Threads take
/// notices from one list and carry them out one at a time. A notice that panics or blocks for ever keeps no
/// answer from other callers: another thread takes the rest. A notice is moved from list to list, so what is
/// large and rare is in a box.
#[derive(Debug)]
pub(crate) enum Notice {
    /// What a step of a machine wants done.
    Later(Later<Handle>),
    Told(Told),
    /// Wakes one of several who are woken by the same.
    Wake(Waker),
    /// A task of the current runtime is asked to read.
    AskTask(PlaceId),
}

/// What follows a step: outcomes to hand over, entries to send, notices to carry out.
#[derive(Default)]
pub(crate) struct Work {
    /// Outcomes that have to be handed to those who asked.
    pub(super) settled: Vec<QueueEntry>,
    /// What runs the user's code, to be done last.
    pub(super) notices: VecDeque<Notice>,
    pub(super) effects: Effects<Handle>,
    /// Calls with `newest` that a later one has followed.
    pub(super) older: Vec<LockId>,
    /// The places on whose queues entries were put that have to be sent.
    pub(super) touched: Vec<Arc<Place>>,
    /// Whether too many leases linger.
    pub(super) has_too_many_idle: bool,
    /// Whether this is the engine's own turn, which need not wake the engine.
    pub(super) is_turn: bool,
}

impl Work {
    /// Puts an entry on the queue of a place, and notes that it must be sent.
    pub(super) fn put_on(&mut self, place: &Arc<Place>, entry: QueueEntry) {
        place.path.put(entry, &mut self.settled);
        if !self.touched.iter().any(|other| other.id == place.id) {
            self.touched.push(Arc::clone(place));
        }
    }
}

thread_local! {
    /// A `Work` to reuse: every step needs one, and allocating it each time would take time.
    static SPARE: Cell<Option<Box<Work>>> = const { Cell::new(None) };
}

impl Core {
    pub(crate) fn new(places: Places, manager: &str) -> Arc<Self> {
        crate::domain::env::notice_forks();
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            table: Table::new(),
            manager: manager.into(),
            places,
            waker: EngineWaker::default(),
            notices: NoticeList::default(),
            reaper: NonPoisonMutex::default(),
            pending: Arc::default(),
            released: NonPoisonMutex::default(),
            search: NonPoisonMutex::default(),
            outages: Outages::default(),
            idle: IdleLeases::default(),
            in_use_answers: InUseAnswers::default(),
            index: NonPoisonMutex::default(),
            numbers: AtomicU64::new(1),
            life: Lifecycle::default(),
            process: crate::domain::env::process(),
            #[cfg(test)]
            crashes: Default::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn crash_if_planted(&self) {
        let left = |left: u8| left.checked_sub(1);
        let crashes = self.crashes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
        assert!(crashes.is_err(), "a planted bug");
    }

    pub(super) fn shared(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_shut() || self.is_forked()
    }

    /// Whether this is a copy in a forked child process: its connections and locks belong to the
    /// parent, and its mutexes may stay locked for ever.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != crate::domain::env::process()
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `act` on the caller's thread, then does everything that follows from it. Notices, which
    /// run the user's code, come last, after everything has been sent.
    pub(crate) fn act<R>(&self, act: impl FnOnce(&mut Work) -> R) -> R {
        // A guard may be dropped after the thread-local storage of its thread.
        let mut work = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        let result = act(&mut work);
        self.finish(&mut work);
        let _ = SPARE.try_with(|spare| spare.set(Some(work)));
        result
    }

    /// Sends what was put on queues, and repeats until no work is left. Notices come last, one at a time.
    /// Several notices are listed, so that another thread can take the rest when a waker blocks this one.
    pub(super) fn finish(&self, work: &mut Work) {
        let mut listed = 0_usize;
        loop {
            self.send(work);
            if listed > 0 || work.notices.len() > 1 {
                listed += work.notices.len();
                self.list(&mut work.notices);
            }
            let notice = match listed.checked_sub(1) {
                Some(rest) => {
                    listed = rest;
                    self.notices.take()
                }
                None => work.notices.pop_front(),
            };
            let Some(notice) = notice else { return };
            self.carry_out(notice, work);
        }
    }

    /// The only way to change a machine, for callers, readers, timers, hints and shutdown. All that
    /// is derived from the machine is updated in the same step, and its question is on the queue
    /// before another step can change the machine.
    pub(crate) fn step(
        &self,
        id: &LockId,
        work: &mut Work,
        change: impl FnOnce(&mut Machine<Handle>, &mut Env<'_, Handle>),
    ) {
        self.step_in(id, None, |_| 0, work, change);
    }

    /// The same for a machine that may have to be made first, for the demand in `makes`. `waiting` counts the
    /// calls that wait for its lock, if that matters.
    pub(super) fn step_in(
        &self,
        id: &LockId,
        makes: Option<&Demand>,
        waiting: impl FnOnce(&Shard) -> usize,
        work: &mut Work,
        change: impl FnOnce(&mut Machine<Handle>, &mut Env<'_, Handle>),
    ) {
        let place = self.places.of(&id.main);
        let mut shard = self.table.shard(&id.main);
        // Read under the lock, so that the time never goes back from one step to the next.
        let now = Moment::now();
        let lingers = shard.linger_pauses.lets_linger(&id.main, now);
        let waiting = waiting(&shard);
        let keys = makes.filter(|_| id.has_own_machine()).map(LineKeys::of);
        let line = keys.as_ref().map_or(LineView::HasRoom, |keys| shard.line(keys));
        let heard = shard.heard_before(id);
        let visited = shard.visit_or_create(id, makes.is_some(), keys);
        let Some((resident, timers)) = visited else { return };
        if let Some(heard) = heard {
            resident.machine.hear(heard, now);
        }
        let mut effects = std::mem::take(&mut work.effects);
        let answered = self.last_answer(&resident.machine, &place);
        let base = self.env(now, &place, lingers, &mut effects);
        let mut env = Env { line, waiting, answered, ..base };
        if let Err(fault) = contained(|| change(&mut resident.machine, &mut env)) {
            resident.machine.fail(&fault, &mut env);
        }
        self.correct_index(id, resident);
        work.has_too_many_idle |= self.correct_idle(id, resident);
        self.put_all(id, resident, now, &mut effects.out, work);
        let mut due = timers.settle(id, resident);
        let is_idle = resident.machine.is_idle();
        let changes_line = id.has_own_machine() && resident.changes_line();
        if id.has_own_machine() {
            self.table.beside.correct(id, &resident.machine, &mut resident.beside);
        }
        if changes_line {
            due = shard.change_line(id, now).into_iter().chain(due).min();
        }
        if is_idle {
            shard.remove(id);
        }
        // In the step that puts the question of the later call on the queue: a question of an older one behind it
        // would end it.
        if std::mem::take(&mut effects.ends_older) {
            work.older = shard.follow(id, now);
        }
        if let Some(was_taken_again) = effects.asked_away.take() {
            shard.linger_pauses.asked_away(&id.main, was_taken_again, now);
        }
        drop(shard);
        if let Some(due) = due {
            self.waker.wake_by(due);
        }
        work.effects = effects;
        self.note(id, work);
    }

    /// When the server of a machine's questions has last answered one. Several keys may be asked for at other
    /// places as well.
    fn last_answer(&self, machine: &Machine<Handle>, place: &Place) -> Moment {
        let is_told = self.places.only().is_some() || !machine.any_other_key(&|_| true);
        if is_told { place.answered() } else { Moment::START }
    }

    /// Makes notices of what a step wants done later.
    pub(super) fn note(&self, id: &LockId, work: &mut Work) {
        let Work { notices, effects, .. } = work;
        // Not under a lock, because what ends with a hold may run the user's code.
        effects.moved.clear();
        // Most steps have none.
        for later in effects.later.drain(..) {
            match later {
                Later::Lost(hold) => {
                    self.wake_each(Arc::clone(&hold), hold.waiting());
                    hold.report_loss();
                }
                Later::Superseded(hold) => {
                    self.wake_each(Arc::clone(&hold), hold.waiting());
                    hold.report_superseded();
                }
                Later::Observe(mut observation) => {
                    if let Observation::Missed { fault, is_first, .. } = &mut *observation {
                        *is_first = self.note_missed(&self.places.of(&id.main), fault);
                    }
                    observation.tell();
                }
                later => notices.push_back(Notice::Later(later)),
            }
        }
    }

    fn env<'a>(
        &'a self,
        now: Moment,
        place: &Place,
        lingers: bool,
        effects: &'a mut Effects<Handle>,
    ) -> Env<'a, Handle> {
        effects.listening = observe::may_be_heard();
        Env {
            now,
            hints: place.hints_enabled.load(Ordering::Relaxed),
            manager: &self.manager,
            spread: now.scrambled() ^ self.manager.as_bytes().last().copied().unwrap_or(0),
            lingers: lingers && !self.is_draining(),
            line: LineView::HasRoom,
            waiting: 0,
            answered: Moment::START,
            numbers: &self.numbers,
            pending: &self.pending,
            process: self.process,
            effects,
        }
    }

    /// Updates the index of tokens that messages may name.
    fn correct_index(&self, id: &LockId, resident: &mut Resident) {
        let awaited = resident.machine.awaited();
        if awaited == resident.indexed.as_ref() {
            return;
        }
        let awaited = awaited.cloned();
        let mut index = self.index.lock();
        if let Some(before) = resident.indexed.take()
            && !planted!(IndexKept)
        {
            index.remove(&before);
        }
        if let Some(token) = &awaited {
            index.insert(Arc::clone(token), id.clone());
        }
        resident.indexed = awaited;
    }

    /// Updates the list of leases that linger. Returns whether there are too many.
    fn correct_idle(&self, id: &LockId, resident: &mut Resident) -> bool {
        if resident.machine.is_idle() {
            if let Some(number) = resident.idle_entry.take() {
                self.idle.remove(number);
            }
            return false;
        }
        let (Some(since), None) = (resident.machine.idle_since(), resident.idle_entry) else {
            return false;
        };
        let (number, has_too_many_idle) = self.idle.enter(id, since);
        resident.idle_entry = Some(number);
        has_too_many_idle
    }

    /// Gives back the oldest lease when too many linger. A lease that was used since it was entered
    /// is entered again by the same step.
    fn make_room(&self, work: &mut Work) {
        while let Some((number, (since, id))) = self.idle.pop_surplus() {
            if let Some(resident) = self.table.shard(&id.main).get_mut(&id)
                && resident.idle_entry == Some(number)
            {
                resident.idle_entry = None;
            }
            self.step(&id, work, |machine, env| machine.make_room(since, env));
        }
    }

    /// Sends what was put on the queues, and hands over outcomes that are known already.
    pub(super) fn send(&self, work: &mut Work) {
        loop {
            if std::mem::take(&mut work.has_too_many_idle) {
                self.make_room(work);
            }
            while let Some(place) = work.touched.pop() {
                self.send_at(&place, work);
            }
            if work.settled.is_empty() {
                return;
            }
            self.settle(work);
        }
    }

    fn send_at(&self, place: &Place, work: &mut Work) {
        let by = RuntimeId::of_caller();
        let (after, due) = place.path.after_put(by, &mut work.settled);
        if !work.is_turn {
            // A caller's time limit may pass before the engine would wake by itself.
            self.waker.wake_by(due);
        }
        match after {
            After::Nothing | After::WakeTask => {}
            // The engine sends, or waits for the connection, before it sleeps.
            After::WakeEngine if work.is_turn => {}
            After::WakeEngine => self.waker.wake(),
            After::Read => place.path.traffic().pump(Moment::now(), &mut work.settled),
            After::AskTask => {
                // Until a task reads, or where none can, the engine sends what is left.
                self.waker.wake();
                work.notices.push_back(Notice::AskTask(place.id));
            }
        }
    }

    /// Sends a command that belongs to no machine.
    pub(super) fn query(&self, command: Command) -> oneshot::Receiver<Result<Answer, Fault>> {
        self.query_at(&self.places.of(command.names.main()), command)
    }

    /// Sends such a command to a place.
    pub(super) fn query_at(
        &self,
        place: &Arc<Place>,
        command: Command,
    ) -> oneshot::Receiver<Result<Answer, Fault>> {
        let (reply, answer) = oneshot::channel();
        self.act(|work| {
            work.put_on(place, QueueEntry::query(command, reply, Moment::now()));
        });
        answer
    }

    /// A connection to a place was made, for the first time or again.
    pub(super) fn connected(&self, place: PlaceId, work: &mut Work) {
        self.step_all_at(place, work, |machine, env| machine.on_connected(env));
    }

    /// Changes all machines of the locks that a place has.
    pub(super) fn step_all_at(
        &self,
        place: PlaceId,
        work: &mut Work,
        change: impl Fn(&mut Machine<Handle>, &mut Env<'_, Handle>),
    ) {
        let is_there = |main: &str| self.places.of(main).id == place;
        self.step_where(&is_there, work, change);
    }

    /// Steps the machines of all locks of which at least one key fits.
    pub(super) fn step_where(
        &self,
        fits: &dyn Fn(&str) -> bool,
        work: &mut Work,
        change: impl Fn(&mut Machine<Handle>, &mut Env<'_, Handle>),
    ) {
        for id in self.table.ids() {
            let fits_first = fits(&id.main);
            if fits_first || id.has_own_machine() {
                self.step(&id, work, |machine, env| {
                    if fits_first || machine.any_other_key(fits) {
                        change(machine, env);
                    }
                });
            }
        }
    }

    /// Takes over the results of driving a path, except those that its driver carries out itself.
    pub(super) fn take_in(&self, results: &mut Results, work: &mut Work) {
        work.settled.append(&mut results.settled);
        work.notices.extend(results.told.drain(..).map(Notice::Told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_small() {
        assert!(size_of::<Notice>() <= 48, "{}", size_of::<Notice>());
        assert!(size_of::<Later<Handle>>() <= 64, "{}", size_of::<Later<Handle>>());
    }
}
