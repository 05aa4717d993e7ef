//! Keeps the map of slots up to date, and does what follows from a change.

use super::core::{Core, Work};
use super::path::Results;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::names;
use crate::store::directory::Map;
use crate::store::redirect::NodeName;

impl Core {
    /// A node contradicted the map, or may have.
    pub(crate) fn look_soon(&self) {
        if let Some(due) = self.places.look_soon() {
            self.waker.wake_by(due);
        }
    }

    /// A node says that another one has a slot.
    pub(super) fn moved(&self, slot: u16, to: &NodeName) {
        self.places.correct(slot, to);
        self.look_soon();
    }

    /// Begins to read the map when that is due.
    pub(super) fn look_if_due(&self, now: Moment, results: &mut Results) {
        if let Some(unrouted) = self.places.begin_look(now)
            && !unrouted.path.traffic().look(now, results)
        {
            // What is being read may be older than the reason for this look.
            self.look_soon();
        }
    }

    /// The map was read.
    pub(crate) fn looked(&self, number: u64, map: &Map, work: &mut Work) {
        let Some(unrouted) = self.places.unrouted() else { return };
        let mut results = Results::default();
        let gone = self.places.take_map(map, Moment::now());
        for place in &gone {
            let what = "this node is no primary any more";
            let fault = Fault::new(FaultClass::Unknown, what);
            place.path.traffic().retire(&fault, &mut results);
            place.path.wake_deposed();
        }
        unrouted.path.traffic().looked(number, Moment::now(), &mut results);
        for place in self.places.primaries().iter() {
            let is_here = |main: &str| self.places.of(main).id == place.id;
            place.path.traffic().give_up_moved(is_here, &mut results);
        }
        self.note_places(work);
        self.take_in(&mut results, work);
        self.send(work);
        if !gone.is_empty() {
            self.release_again(work);
        }
        self.notify_moved(work);
    }

    /// Has machines whose lock is at another place now ask, or renew, at once.
    fn notify_moved(&self, work: &mut Work) {
        let moved = self.places.take_moved();
        if moved.is_empty() {
            return;
        }
        let has_moved = |main: &str| moved.binary_search(&names::slot(main)).is_ok();
        self.step_where(&has_moved, work, |machine, env, out| machine.connected(env, out));
        self.send(work);
    }
}
