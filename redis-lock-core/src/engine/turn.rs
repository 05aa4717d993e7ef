//! One turn of the engine: its work on messages and on repeated releases each time it wakes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::{Core, Notice, Work};
use super::lock_id::LockId;
use super::outcomes::tell;
use super::path::{News, QueueEntry, Results, Told};
use super::places::{Place, PlaceId, UNROUTED};
use super::reaper::Reaper;
use super::shutdown::given_up;
use super::timers::Timer;

use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::names::Names;
use crate::lock::{Next, Outcome, Outgoing, Reap};
use crate::observe::{self, Observation};
use crate::store::{Connected, Event};
use crate::{LockError, Token};

/// How many of the last releases of a replaced server are repeated at once, and after each pause. All
/// processes repeat them at the same time, and their callers want locks of its successor.
const AGAIN_AT_ONCE: usize = 32;
const AGAIN_PAUSE: Duration = Duration::from_millis(25);

/// The results of one turn.
pub(crate) struct Pass {
    /// When the next one is due.
    pub(crate) due: Moment,
    /// The places to connect to, with the numbers of the attempts. At the unrouted place it is a read of the
    /// map.
    pub(crate) connects: Vec<(PlaceId, u64)>,
}

impl Core {
    /// Reads what has arrived, does what is due, and sends. Notices, which run the user's code, are
    /// left in `work`.
    pub(crate) fn turn(&self, work: &mut Work) -> Pass {
        let now = Moment::now();
        let mut results = Results::default();
        work.is_turn = true;
        let mut connects = Vec::new();
        for place in self.places.all().iter() {
            self.turn_of(place, now, &mut results, work);
            connects.extend(results.connects.drain(..).map(|number| (place.id, number)));
        }
        self.look_if_due(now, &mut results);
        connects.extend(results.connects.drain(..).map(|number| (UNROUTED, number)));
        // Machines get the outcomes that have arrived before their time limits are checked.
        self.send(work);
        self.tick(now, work);
        self.send(work);
        for place in self.places.all().iter() {
            place.path.traffic().push_out(&mut work.settled);
        }
        self.send(work);
        self.drain_if_due(now, work);
        work.is_turn = false;
        Pass { due: Timer::first(self, now), connects }
    }

    /// Reads the answers of a place, and supervises its connection.
    fn turn_of(&self, place: &Place, now: Moment, results: &mut Results, work: &mut Work) {
        place.path.traffic().read_as(None, now, &mut results.settled);
        self.take_in(results, work);
        self.send(work);
        place.path.traffic().turn(now, results);
        place.path.wake_deposed();
        self.take_in(results, work);
        self.handle_news(place, results, work);
    }

    /// A connection was made, or could not be.
    pub(crate) fn made(
        &self,
        place: PlaceId,
        number: u64,
        made: Result<Connected, Fault>,
        work: &mut Work,
    ) {
        let Some(place) = self.places.get(place) else { return };
        let mut results = Results::default();
        {
            let (mut traffic, now) = (place.path.traffic(), Moment::now());
            match made {
                Ok(made) => {
                    // Answers that the old connection has received meanwhile are read first, so that it
                    // does not count as silent.
                    traffic.pump(now, &mut results.settled);
                    traffic.connected(number, made, now, &mut results);
                }
                Err(fault) => traffic.failed(number, fault, now, &mut results),
            }
        }
        self.take_in(&mut results, work);
        self.handle_news(&place, &mut results, work);
        self.send(work);
    }

    fn handle_news(&self, place: &Place, results: &mut Results, work: &mut Work) {
        for news in results.news.drain(..) {
            match news {
                News::Up => {
                    let lines = self.outages.connects(place.id, Moment::now());
                    tell(lines);
                    if place.path.traffic().epoch() > Some(1) {
                        // Another server may be reached now.
                        self.look_soon();
                    }
                    // Releases that were refused meanwhile are sent before new questions.
                    self.put_reaps(Reaper::take_failed, work);
                    self.send(work);
                    self.connected(place.id, work);
                }
                News::Unreachable(fault) => {
                    self.look_soon();
                    let (_, line) = self.outages.disconnects(place, &fault, Moment::now());
                    tell(line);
                }
            }
        }
    }

    /// Handles an event that is no answer to a question.
    pub(crate) fn receive(&self, place: PlaceId, event: Event, work: &mut Work) {
        match event {
            Event::Granted { token, waited_for } => {
                let Some(id) = self.index.lock().get(token.as_str()).cloned() else { return };
                self.step(&id, work, |machine, env| {
                    machine.on_hint(&token, waited_for, env);
                });
            }
            Event::WaitedFor { key } => {
                let id = LockId::mutex(&key);
                self.step(&id, work, |machine, env| machine.on_waited_for(env));
            }
            Event::Asked { key, token } => {
                let (id, asker) = (LockId::mutex(&key), Token::from_wire(&token));
                self.step(&id, work, |machine, env| {
                    let now = env.now;
                    let may_answer = || self.in_use_answers.may_answer(now);
                    machine.on_asked_for(&asker, may_answer, env);
                });
            }
            Event::Forced { token } => {
                self.search.lock().add(token);
                self.waker.wake();
            }
            Event::Returned => {
                self.connected(place, work);
            }
            Event::Listening { hints_enabled } => {
                let place = if planted!(CountedElsewhere) { place % 2 + 1 } else { place };
                let Some(place) = self.places.get(place) else { return };
                let before = place.hints_enabled.swap(hints_enabled, Ordering::Relaxed);
                if before != hints_enabled {
                    // A node that has lost its slots ends the subscription, before anything is
                    // asked there. No message reported what changed before the subscription began.
                    self.look_soon();
                }
                self.step_all_at(place.id, work, |machine, env| machine.on_listening(env));
            }
        }
    }

    /// Runs due timers of machines, due releases, and due searches.
    fn tick(&self, now: Moment, work: &mut Work) {
        for id in self.table.due_at(now) {
            self.step(&id, work, |machine, env| machine.tick(env));
        }
        let overdue = self.reaper.lock().overdue(now);
        work.notices.extend(overdue.into_iter().map(Told::release).map(Notice::Told));
        self.put_reaps(|reaper| reaper.take_due(now), work);
        self.look_for_forced(now, work);
    }

    /// Has the machines of tokens that were ended by force, according to messages, ask the server.
    fn look_for_forced(&self, now: Moment, work: &mut Work) {
        let Some(tokens) = self.search.lock().begin(now) else { return };
        for id in self.table.ids() {
            let leased = {
                let shard = self.table.shard(&id.main);
                shard.get(&id).and_then(|resident| resident.machine.leased().cloned())
            };
            if leased.is_some_and(|leased| tokens.contains(&*leased)) {
                self.step(&id, work, |machine, env| machine.on_forced(env));
            }
        }
    }
}

impl Core {
    /// The outcome of a try to release a token.
    pub(super) fn reaped(&self, reap: Box<Reap>, outcome: Outcome, sent: Moment, work: &mut Work) {
        if let (Outcome::Refused(fault) | Outcome::Unknown(fault), true) =
            (&outcome, observe::may_be_heard())
        {
            let (key, fault) = (reap.names().user_key().to_owned(), fault.clone());
            Observation::Failed(key, reap.sort(), fault).tell();
        }
        let now = Moment::now();
        let (confirmation, next) = reap.outcome(outcome, sent, now);
        work.notices.extend(confirmation.map(Told::release).map(Notice::Told));
        match next {
            // With only one server, nothing has to be released again.
            Next::Done(_) if self.places.only().is_some() => {}
            Next::Done(reap) => {
                let place_of = |names: &Names| self.places.of(names.main()).id;
                let others = match reap.is_split() {
                    true => reap.names().all().skip(1).map(place_of).collect(),
                    false => Vec::new(),
                };
                let place = place_of(reap.names());
                self.released.lock().add(reap, (place, others), now);
            }
            Next::Again(at, reap) => self.release_at(at, reap, now, work),
        }
    }

    /// Releases a token once more, now or at this time.
    fn release_at(&self, at: Moment, reap: Box<Reap>, now: Moment, work: &mut Work) {
        if at <= now {
            return self.put(QueueEntry::reap(reap, now), work);
        }
        let refused = self.reaper.lock().keep(at, reap);
        let told = refused.and_then(|reap| given_up(reap, &LockError::Shutdown));
        work.notices.extend(told.map(Notice::Told));
        self.waker.wake_by(at);
    }

    /// Has the releases that are still owed for some keys sent before the keys are asked for again. To be
    /// called under the lock of the machine's shard.
    pub(super) fn release_owed(&self, out: &mut Vec<Outgoing>) {
        if self.pending.is_empty() {
            return;
        }
        let Some((at, names)) =
            out.iter().enumerate().find_map(|(at, outgoing)| Some((at, outgoing.acquires()?)))
        else {
            return;
        };
        let owed: Vec<_> = self.reaper.lock().take_owed(names).map(Outgoing::Part).collect();
        out.splice(at..at, owed);
    }

    /// Puts releases from the reaper on their queues. All are taken first: those that are refused at once
    /// go back.
    pub(super) fn put_reaps<I: Iterator<Item = Box<Reap>>>(
        &self,
        take: impl FnOnce(&mut Reaper) -> I,
        work: &mut Work,
    ) {
        let now = Moment::now();
        let reaps = take(&mut self.reaper.lock());
        reaps.for_each(|reap| self.put(QueueEntry::reap(reap, now), work));
    }

    /// A server has left the map: its successor may still have tokens that it released. The last ones
    /// are the likeliest, and come before callers that want a lock there.
    pub(super) fn release_again(&self, work: &mut Work) {
        let now = Moment::now();
        let again = self.released.lock().take_moved(now, |main| self.places.of(main).id);
        for (newer, reap) in again {
            // A shutdown does not wait for those of later.
            let parts_before = if self.is_shut() { 0 } else { newer / AGAIN_AT_ONCE };
            let pauses = u32::try_from(parts_before).unwrap_or(u32::MAX);
            self.release_at(now.after(AGAIN_PAUSE * pauses), reap.repeated(), now, work);
        }
        self.send(work);
    }
}
