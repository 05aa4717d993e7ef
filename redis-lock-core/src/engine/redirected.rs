//! Several nodes: what follows from a new map, and from a node that does not have a key.

use std::sync::Arc;

use super::core::{Core, Work, put_on};
use super::outcomes::UNWANTED;
use super::path::{Gathering, LockId, Origin, QueueEntry, Results, Settled};
use super::places::Place;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::names;
use crate::lock::{Outcome, Outgoing};
use crate::store::wire::{Map, NodeName, Redirect};

/// A version that no routing has.
const NO_ROUTING: u64 = u64::MAX;

impl Core {
    /// The entry of what a machine sends, under the lock of the machine's shard. `asked` is the version of
    /// the routing that its last question was sent with.
    pub(super) fn entry_of(
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
    /// its keys.
    pub(super) fn put_where_known(
        &self,
        entry: QueueEntry,
        now: Moment,
        (settled, touched): (&mut Vec<Settled>, &mut Vec<Arc<Place>>),
    ) {
        let Some(main) = entry.main() else { return };
        let parts = match self.places.cluster() {
            Some(cluster) if entry.is_split() => {
                let (parts, outcome) = Gathering::begin(entry, now, cluster);
                settled.extend(outcome);
                parts
            }
            _ => return put_on(&self.places.of(&main), entry, settled, touched),
        };
        for (main, entry) in parts {
            put_on(&self.places.of(&main), entry, settled, touched);
        }
    }

    /// Sends an entry on that was not executed by the node that it was sent to.
    pub(super) fn redirect(
        &self,
        mut entry: QueueEntry,
        redirect: Option<Redirect>,
        work: &mut Work,
    ) {
        let Some(main) = entry.main() else { return };
        let place = self.place_after(&main, redirect.as_ref());
        entry.asks = matches!(redirect, Some(Redirect::Ask { .. }));
        if place.is_unrouted() && redirect.is_none() && self.places.version() > 0 {
            // There is a map, and no node on it has the slot.
            let settled = entry.refused("no node of the cluster has the slot of this key");
            return work.settled.push(settled);
        }
        match &mut entry.origin {
            Origin::Lock(id, number) => {
                let mut shard = self.table.shard(&id.main);
                let Some(resident) = shard.get_mut(id) else { return };
                if !resident.machine.wants(*number) {
                    return;
                }
                resident.asked = NO_ROUTING;
                return self.put_at(&place, entry, work);
            }
            Origin::Reap(reap) => reap.doubt_dropped(Moment::now()),
            Origin::Ping => return,
            Origin::Part(gathering, _) if !self.is_wanted(gathering) => {
                return work.settled.push(entry.refused(UNWANTED));
            }
            Origin::Part(..) | Origin::Query(_) => {}
        }
        self.put_at(&place, entry, work);
    }

    fn place_after(&self, main: &str, redirect: Option<&Redirect>) -> Arc<Place> {
        match redirect {
            Some(Redirect::Moved { slot, to }) => self.moved(*slot, to),
            Some(Redirect::Ask { to }) => {
                if let Some(place) = self.places.named(to) {
                    return place;
                }
            }
            None => {}
        }
        self.places.of(main)
    }

    /// Has the map read again after a refusal or an unknown outcome, because the wrong node may
    /// have been asked.
    pub(super) fn doubt_map(&self, outcome: &Outcome) {
        if let Outcome::Refused(_) | Outcome::Unknown(_) = outcome {
            self.look_soon();
        }
    }
}

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
