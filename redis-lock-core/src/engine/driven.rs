//! Drives a core from one thread for the simulation, as `run` does with a thread, a runtime and a
//! clock.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::core::{Core, Work};
use super::path::{AskedBy, Path};
use super::places::{Place, PlaceId};
use super::reading::{BLIND_PAUSE, poll_place};
use super::timers::Timer;
use crate::domain::clock::Moment;
use crate::lock::Reap;

/// The results of one turn that the simulation drove.
pub(crate) struct Driven {
    pub(crate) due: Moment,
    /// The places that need a connection, with the numbers of the attempts. At the unrouted
    /// place the connection reads the map.
    pub(crate) connects: Vec<(PlaceId, u64)>,
    pub(crate) is_done: bool,
}

impl Core {
    /// Watches the sockets, as the engine's thread does before it sleeps. Returns when it wakes for them at
    /// the latest, unless `waker` is called before.
    pub(crate) fn watch_sockets(&self, waker: &Waker) -> Moment {
        let (places, now) = (self.places.all(), Moment::now());
        let watched = places.iter().filter(|place| !place.is_unrouted());
        let due = watched.map(|place| match poll_place(place, &mut Context::from_waker(waker)) {
            Poll::Ready(Ok(())) => now,
            Poll::Ready(Err(_)) => now.after(BLIND_PAUSE),
            Poll::Pending => Moment::NEVER,
        });
        due.min().unwrap_or(Moment::NEVER)
    }

    /// Whether nothing is left in any table, queue or index.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.table.is_empty()
            && self.index.lock().is_empty()
            && self.idle.len() == 0
            && self.reaper.lock().is_empty()
            && self.places.all().iter().all(|place| self.is_place_at_rest(place))
    }

    /// With several nodes, a `PING` may be under way at any time.
    fn is_place_at_rest(&self, place: &Place) -> bool {
        let traffic = place.path.traffic();
        traffic.is_at_rest()
            || self.places.only().is_none() && !traffic.has_questions() && !traffic.has_dropped()
    }

    /// One turn, as the engine's thread takes it.
    pub(crate) fn drive(&self, work: &mut Work) -> Driven {
        self.waker.wakes();
        let turn = self.turn(work);
        self.notices.add(&mut work.notices);
        let due = self.waker.sleep_until(turn.due, || self.table.next_due());
        let connects = turn.connects;
        Driven { due, connects, is_done: self.is_done(Moment::now()) }
    }

    /// The path to the only place.
    pub(crate) fn only_path(&self) -> &Path {
        &self.places.only().expect("one place").path
    }

    /// When each timer is due, as things are at `now`.
    pub(crate) fn timers(&self, now: Moment) -> [(Timer, Moment); Timer::ALL.len()] {
        Timer::ALL.map(|timer| (timer, timer.due(self, now)))
    }

    /// Sends and hands over what resulted from steps outside of a turn.
    pub(crate) fn collect_notices(&self, work: &mut Work) {
        self.notices.add(&mut work.notices);
    }

    pub(crate) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Carries out all notices.
    pub(crate) fn carry_out_all(&self) {
        while let Some(notice) = self.notices.take() {
            self.act(|work| self.carry_out(notice, work));
        }
    }

    /// What the engine's thread does when it ends.
    pub(crate) fn stop(&self) {
        self.act(|work| self.end(work));
        self.on_ended();
        self.carry_out_all();
    }

    /// Whether one of the engine's mutexes is locked. Only meaningful when there is one thread.
    pub(crate) fn holds_locks(&self) -> bool {
        self.table.is_locked()
            || self.places.all().iter().any(|place| place.path.is_locked())
            || self.reaper.is_locked()
            || self.search.is_locked()
    }

    /// The tokens of idle leases, and since when they are idle.
    pub(crate) fn kept(&self) -> Vec<(Arc<str>, Moment)> {
        self.table.kept()
    }

    /// Whether a lock waits with this token, and messages may name it.
    pub(crate) fn awaits(&self, token: &Arc<str>) -> bool {
        self.index.lock().contains_key(token)
    }

    /// The number of entries in each table, and the most that it may have for this number of
    /// keys.
    pub(crate) fn sizes(&self, keys: usize) -> [(&'static str, usize, usize); 5] {
        let [machines, timers, lines] = self.table.sizes();
        let (leaving, named) = (self.leaving().len(), self.index.lock().len());
        [
            ("timers", timers, machines),
            ("lines of waiters", lines, machines),
            ("tokens that messages may name", named, machines),
            ("idle leases", self.idle.len(), machines),
            ("releases without an answer", self.pending.len(), leaving * keys),
        ]
    }

    /// The number of a question that was put on the queue of a place and has no outcome yet.
    pub(crate) fn asked_as(&self, place: PlaceId, seq: u64) -> Option<u64> {
        self.places.get(place)?.path.traffic().asked_as(seq)
    }

    /// Whether a try to release this token has failed, so that the next one has no order with questions.
    pub(crate) fn has_failed_release(&self, token: &Arc<str>) -> bool {
        let is_it = |reap: &Reap| reap.has_failed() && reap.attempt().wire() == token;
        let is_queued = |origin: &AskedBy| matches!(origin, AskedBy::Reap(reap) if is_it(reap));
        self.reaper.lock().reaps().any(is_it)
            || self.places.all().iter().any(|it| it.path.traffic().origins().any(is_queued))
    }

    /// The tokens in machines, and those in the reaper and in releases that have no outcome yet.
    pub(crate) fn tokens(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        (self.table.tokens(), self.leaving())
    }

    fn leaving(&self) -> Vec<Arc<str>> {
        let mut leaving: Vec<_> =
            self.reaper.lock().reaps().map(|reap| Arc::clone(reap.attempt().wire())).collect();
        for place in self.places.all().iter() {
            leaving.extend(place.path.traffic().origins().filter_map(AskedBy::leaving));
        }
        leaving
    }
}
