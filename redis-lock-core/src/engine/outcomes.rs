//! Hands outcomes to those who asked, follows redirects and new maps, notes what outcomes say of the
//! server, and carries out notices.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use super::core::{Core, Notice, Work};
use super::lock_id::LockId;
use super::path::{AskedBy, EntryState, Gathering, InHand, QueueEntry, Results, Told};
use super::places::{Place, UNROUTED};
use super::table::{Handle, NotGranted, Resident, Shard};
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
#[cfg(test)]
use crate::domain::env::simulated;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names;
use crate::domain::value::Finish;
use crate::lock::hold::Hold;
use crate::lock::{Later, Outcome, Outgoing};
use crate::observe::{self, OutageLine, caught};
use crate::store::Answer;
use crate::store::groups::NextPart;
use crate::store::wire::{Map, NodeName, Redirect, UNWANTED};

/// For how many outcomes memory is kept.
const MOST_SPARE: usize = 256;

/// A version that no routing has.
const NO_ROUTING: u64 = u64::MAX;

impl Core {
    /// Hands outcomes to those who asked.
    pub(super) fn settle(&self, work: &mut Work) {
        let mut all = std::mem::take(&mut work.settled);
        if all.iter().any(QueueEntry::is_owed) {
            // The next try is on its queue, or the reaper has it, before the machine of its key asks again.
            all.sort_by_key(|entry| !entry.is_owed());
        }
        for entry in all.drain(..) {
            let EntryState::Settled(outcome) = entry.state else {
                self.redirect(entry, work);
                continue;
            };
            // It counts as in hand until what follows from it is on a queue, or with the reaper.
            let QueueEntry { origin, sent, hand, .. } = entry;
            if !outcome.is_answered() {
                // The wrong node may have been asked.
                self.look_soon();
            }
            match origin {
                AskedBy::Lock(id, number) => self.tell_outcome(&id, number, outcome, work),
                AskedBy::Reap(reap) => self.reaped(reap, outcome, sent, work),
                AskedBy::Part(gathering, group) => {
                    self.gather(&gathering, group, outcome, hand, work);
                }
                AskedBy::Query(reply) => {
                    let told = reply.map(|reply| Told::reply(reply, outcome.into()));
                    work.notices.extend(told.map(Notice::Told));
                }
                AskedBy::Ping => {}
            }
        }
        if work.settled.is_empty() && all.capacity() <= MOST_SPARE {
            work.settled = all;
        }
    }

    fn tell_outcome(&self, id: &LockId, number: u64, outcome: Outcome, work: &mut Work) {
        let is_unknown = matches!(outcome, Outcome::Unknown(_));
        let place = self.places.of(&id.main);
        self.note_outcome(&place, &outcome);
        if outcome.is_answered() {
            place.note_answer(Moment::now());
        }
        let is_busy = matches!(outcome, Outcome::Answered(Answer::Busy(_)));
        let waiting = |shard: &Shard| match shard
            .get(id)
            .filter(|_| is_busy && id.has_own_machine())
        {
            Some(resident) if resident.machine.may_be_crowded() => shard.crowd(&id.main).refused,
            _ => 0,
        };
        self.step_in(id, None, waiting, work, |machine, env| {
            machine.on_outcome(number, outcome, env);
        });
        if is_unknown {
            self.places.of(&id.main).path.traffic().unknown_reported(number);
        }
    }

    /// A part has its outcome.
    pub(super) fn gather(
        &self,
        gathering: &Arc<Gathering>,
        group: usize,
        outcome: Outcome,
        hand: InHand,
        work: &mut Work,
    ) {
        match gathering.answered(group, outcome) {
            None => {}
            Some(NextPart::Done(answer)) => work.settled.extend(gathering.settle(answer, hand)),
            Some(NextPart::Ask(_)) if !self.is_wanted(gathering) => {
                // Its token is being released; another round would overtake the release.
                let dropped = Err(Fault::unwanted());
                work.settled.extend(gathering.settle(dropped, hand));
            }
            Some(NextPart::Ask(parts)) => {
                for (main, entry) in gathering.entries(parts) {
                    let place = self.places.of(&main);
                    work.put_on(&place, entry);
                }
            }
        }
    }

    pub(super) fn is_wanted(&self, gathering: &Gathering) -> bool {
        let Some(asked_by) = gathering.asked_by() else { return false };
        asked_by.is_none_or(|(id, number)| {
            let shard = self.table.shard(&id.main);
            shard.get(&id).is_some_and(|resident| resident.machine.wants(number))
        })
    }

    /// A question of a machine has its outcome.
    pub(super) fn note_outcome(&self, place: &Place, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(_) if !self.outages.are_any() => {}
            Outcome::Answered(answer) => {
                let has_written = matches!(answer, Answer::Held { .. });
                tell(self.outages.answers(place.id, has_written, Moment::now()));
            }
            // The path tells if the next connection can't be made either.
            Outcome::Unknown(fault) if fault.kind == BackendErrorKind::Unreachable => {}
            Outcome::Refused(fault) | Outcome::Unknown(fault) => {
                if is_of_server(fault) && !self.is_shut() {
                    tell(self.outages.fails(place, fault, Moment::now()).1);
                }
            }
        }
    }

    /// A renewal of a lock was missed. Operators read about the first lock of each outage, because
    /// all locks of a server miss theirs at the same time. Returns whether this is the first.
    pub(super) fn note_missed(&self, place: &Place, fault: &Fault) -> bool {
        let now = Moment::now();
        let (is_first, line) = match fault.kind {
            BackendErrorKind::Unreachable => self.outages.disconnects(place, fault, now),
            _ => self.outages.fails(place, fault, now),
        };
        tell(line);
        is_first
    }

    /// The map was read.
    pub(super) fn note_places(&self) {
        if self.outages.are_any() {
            let places: Vec<_> = self.places.all().iter().map(|place| place.id).collect();
            let now = Moment::now();
            let lines = self.outages.connects(UNROUTED, now);
            let gone = self.outages.retain(&places, now);
            tell(lines.into_iter().chain(gone));
        }
    }

    /// Runs the user's code, and catches its panics.
    pub(super) fn carry_out(&self, notice: Notice, work: &mut Work) {
        // The notice itself is done: the value was sent before the waker ran.
        caught(|| self.run(notice, work));
    }

    fn run(&self, notice: Notice, work: &mut Work) {
        match notice {
            Notice::Later(Later::Grant(Handle { id, answer }, hold)) => {
                if let Err(Ok(hold)) = answer.send(Ok(hold)) {
                    self.take_back(&id, &hold, work);
                }
            }
            // The caller may be gone, which changes nothing.
            Notice::Later(Later::Fail(handle, error)) => {
                drop(handle.answer.send(Err((*error).into())));
            }
            Notice::Later(Later::Share(handle, value)) => {
                drop(handle.answer.send(Err(Box::new(NotGranted::Value(*value)))));
            }
            Notice::Later(Later::Confirm(confirm, outcome)) => {
                drop(confirm.send(outcome.map_err(|error| *error)));
            }
            Notice::Later(Later::Broken(machine)) => drop(machine),
            // They are reported on another thread.
            Notice::Later(Later::Lost(_) | Later::Superseded(_) | Later::Observe(_)) => {}
            Notice::Told(told) => told.tell(),
            Notice::Wake(waker) => waker.wake(),
            Notice::AskTask(place) => self.ask_task_to_read(place),
        }
    }

    /// The caller is gone. An adopted token still belongs to the process that gave it away.
    fn take_back(&self, id: &LockId, hold: &Arc<Hold>, work: &mut Work) {
        self.step(id, work, |machine, env| match hold.demand.adopts {
            Some(_) => drop(machine.detach(hold, false, env)),
            None => drop(machine.release(hold, &Finish::Release, || None, env)),
        });
    }

    /// Leaves it to notices to wake this number of waiters for the same key. `one` wakes one of them.
    /// Each has a notice, so that a waker that blocks delays no other.
    pub(super) fn wake_each(&self, one: Arc<impl Wake + Send + Sync + 'static>, count: usize) {
        if count > 0 {
            let one = Waker::from(one);
            self.leave(&mut (0..count).map(|_| Notice::Wake(one.clone())).collect());
        }
    }

    /// Leaves notices to the threads that carry them out, which the engine starts and watches.
    pub(super) fn leave(&self, notices: &mut VecDeque<Notice>) {
        self.notices.add(notices);
        #[cfg(test)]
        if simulated::is_active() {
            // The simulation carries them out itself.
            return self.waker.wake();
        }
        if self.life.has_ended() {
            self.notices.hand_to_thread(self.notifier());
        } else {
            self.waker.wake();
        }
    }

    /// Lists notices that this thread will carry out, so that other threads can take them if it blocks.
    pub(super) fn list(&self, notices: &mut VecDeque<Notice>) {
        if self.life.has_ended() {
            self.leave(notices);
        } else if self.notices.add_own(notices) {
            self.waker.wake();
        }
    }

    /// The loop of a thread that carries out notices. It ends when there are enough such threads,
    /// or when the engine has ended.
    pub(super) fn notifier(&self) -> impl FnOnce() + Send + 'static {
        #[cfg(test)]
        assert!(!simulated::is_active(), "a thread would make a history differ from run to run");
        let me = Weak::clone(&self.me);
        move || {
            let Some(core) = me.upgrade() else { return };
            while let Some(notice) = core.notices.next() {
                core.act(|work| core.carry_out(notice, work));
            }
        }
    }

    /// Puts what a machine has to send on the queues.
    pub(super) fn put_all(
        &self,
        id: &LockId,
        resident: &mut Resident,
        now: Moment,
        out: &mut Vec<Outgoing>,
        work: &mut Work,
    ) {
        if out.is_empty() {
            return;
        }
        self.release_owed(out);
        for outgoing in out.drain(..) {
            let entry = self.entry_of(id, outgoing, now, &mut resident.asked);
            self.put(entry, work);
        }
    }

    /// The entry of what a machine sends, under the lock of the machine's shard. `asked` is the version of
    /// the routing that its last question was sent with.
    fn entry_of(
        &self,
        id: &LockId,
        mut outgoing: Outgoing,
        now: Moment,
        asked: &mut u64,
    ) -> QueueEntry {
        let version = self.places.version();
        match &mut outgoing {
            Outgoing::Ask(_) => *asked = version,
            Outgoing::Part(reap) => {
                reap.begin(&self.pending, || self.number());
                if *asked != version {
                    reap.doubt_dropped(now);
                }
            }
            Outgoing::Message(_) => {}
        }
        QueueEntry::of(id, outgoing, now)
    }

    /// Puts an entry, or its parts where its keys have several slots, on the queues of the places that have
    /// its keys, to be sent by [`send`](Self::send). What a machine sends is put there under the lock of its
    /// shard.
    pub(super) fn put(&self, entry: QueueEntry, work: &mut Work) {
        let Some(main) = entry.route() else { return };
        match self.places.as_several() {
            Some(several) if entry.is_split() => {
                let (parts, outcome) = Gathering::begin(entry, &several.cluster);
                work.settled.extend(outcome);
                for (main, entry) in parts {
                    work.put_on(&self.places.of(&main), entry);
                }
            }
            _ => work.put_on(&self.places.of(&main), entry),
        }
    }

    /// Sends an entry on that was not executed by the node that it was sent to.
    pub(super) fn redirect(&self, mut entry: QueueEntry, work: &mut Work) {
        let redirect = entry.requeue();
        let Some(main) = entry.route() else { return };
        let place = self.place_after(&main, redirect.as_ref());
        entry.asks = matches!(redirect, Some(Redirect::Ask { .. }));
        if place.is_unrouted() && redirect.is_none() && self.places.version() > 0 {
            // There is a map, and no node on it has the slot.
            let refused = entry.refused("no node of the cluster has the slot of this key");
            return work.settled.push(refused);
        }
        match &mut entry.origin {
            AskedBy::Lock(id, number) => {
                let mut shard = self.table.shard(&id.main);
                let Some(resident) = shard.get_mut(id) else { return };
                if !resident.machine.wants(*number) {
                    return;
                }
                if resident.machine.is_outdone() {
                    // It would come after the question of a later call.
                    return work.settled.push(entry.refused(UNWANTED));
                }
                resident.asked = NO_ROUTING;
                return work.put_on(&place, entry);
            }
            AskedBy::Reap(reap) => reap.doubt_dropped(Moment::now()),
            AskedBy::Ping => return,
            AskedBy::Part(gathering, _) if !self.is_wanted(gathering) => {
                return work.settled.push(entry.refused(UNWANTED));
            }
            AskedBy::Part(..) | AskedBy::Query(_) => {}
        }
        work.put_on(&place, entry);
    }

    fn place_after(&self, main: &str, redirect: Option<&Redirect>) -> Arc<Place> {
        match redirect {
            Some(Redirect::Moved { slot, to }) => self.moved(*slot, to),
            Some(Redirect::Ask { to }) => {
                let named = self.places.as_several().and_then(|several| several.named(to));
                return named.unwrap_or_else(|| self.places.of(main));
            }
            None => {}
        }
        self.places.of(main)
    }

    /// A node contradicted the map, or may have.
    pub(crate) fn look_soon(&self) {
        if let Some(several) = self.places.as_several() {
            self.waker.wake_by(several.look_soon());
        }
    }

    /// A node says that another one has a slot.
    pub(super) fn moved(&self, slot: u16, to: &NodeName) {
        if let Some(several) = self.places.as_several() {
            several.correct(slot, to);
        }
        self.look_soon();
    }

    /// Begins to read the map when that is due.
    pub(super) fn look_if_due(&self, now: Moment, results: &mut Results) {
        if let Some(several) = self.places.as_several()
            && several.begins_look(now)
            && !several.unrouted.path.traffic().look(now, results)
        {
            // What is being read may be older than the reason for this look.
            self.look_soon();
        }
    }

    /// The map was read.
    pub(crate) fn looked(&self, number: u64, map: &Map, work: &mut Work) {
        let Some(several) = self.places.as_several() else { return };
        let mut results = Results::default();
        let gone = several.take_map(map, Moment::now());
        for place in &gone {
            let what = "this node is no primary any more";
            let fault = Fault::new(FaultClass::Unknown, what);
            place.path.traffic().retire(&fault, &mut results);
            place.path.wake_deposed();
        }
        several.unrouted.path.traffic().looked(number, Moment::now(), &mut results);
        for place in self.places.primaries().iter() {
            let is_here = |main: &str| self.places.of(main).id == place.id;
            place.path.traffic().give_up_moved(is_here, &mut results);
        }
        self.note_places();
        self.take_in(&mut results, work);
        self.send(work);
        if !gone.is_empty() {
            self.release_again(work);
        }
        let moved = several.take_moved();
        if !moved.is_empty() {
            // Machines whose lock is at another place now ask, or renew, at once.
            let has_moved = |main: &str| moved.binary_search(&names::slot(main)).is_ok();
            self.step_where(&has_moved, work, |machine, env| machine.on_connected(env));
            self.send(work);
        }
    }
}

/// Whether a failure says something of the server, and not only of one lock.
fn is_of_server(fault: &Fault) -> bool {
    let is_of_lock = matches!(fault.class, FaultClass::Misuse | FaultClass::Unsupported);
    let is_ours = &*fault.what == UNWANTED;
    !is_of_lock && !is_ours && !fault.class.is_moving() && fault.kind != BackendErrorKind::Foreign
}

/// Gives operators their lines.
pub(super) fn tell(lines: impl IntoIterator<Item = OutageLine>) {
    lines.into_iter().for_each(observe::log::outage);
}
