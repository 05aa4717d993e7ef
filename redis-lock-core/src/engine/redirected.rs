//! Entries that a node did not execute, and that go on to another place.
//!
//! A release may not be executed before the acquisition that it makes void. In one queue the order
//! ensures that. Where the two may have gone to different places, the release leaves a tombstone;
//! and a question that was sent elsewhere goes on only while its machine wants it.

use std::sync::Arc;

use super::core::{Core, Work, entry_of, touch};
use super::path::{Origin, QueueEntry, Settled};
use super::places::{Place, PlaceOf};
use super::table::LockId;
use crate::domain::clock::Moment;
use crate::lock::{Outcome, Outgoing};
use crate::store::redirect::Redirect;

/// No routing has this version.
const NO_ROUTING: u64 = u64::MAX;

impl Core {
    /// Puts what a machine sends on the queue of the place that has its lock, under the lock of its
    /// shard. `asked` is the routing that its last question went by.
    pub(super) fn put_where_known(
        &self,
        id: &LockId,
        outgoing: impl Iterator<Item = Outgoing>,
        now: Moment,
        asked: &mut u64,
        (settled, touched): (&mut Vec<Settled>, &mut Vec<Arc<Place>>),
    ) {
        let version = self.places.version();
        for mut outgoing in outgoing {
            match &mut outgoing {
                Outgoing::Ask(_) => *asked = version,
                Outgoing::Part(reap) if *asked != version => reap.doubt_dropped(now),
                Outgoing::Part(_) | Outgoing::Message(_) => {}
            }
            let entry = entry_of(id, outgoing, now);
            for (main, entry) in self.parts(&id.main, entry, now, settled) {
                let place = self.places.of(&main);
                place.path.put(entry, settled);
                touch(touched, &place);
            }
        }
    }

    /// Puts something on the queues of the places that have its keys.
    pub(super) fn put_split(&self, main: &Arc<str>, entry: QueueEntry, work: &mut Work) {
        for (main, entry) in self.parts(main, entry, Moment::now(), &mut work.settled) {
            let place = self.places.of(&main);
            self.put_at(&place, entry, work);
        }
    }

    /// Something was not executed where it was sent.
    pub(super) fn redirect(
        &self,
        mut entry: QueueEntry,
        redirect: Option<Redirect>,
        work: &mut Work,
    ) {
        let Some(main) = entry.main() else { return };
        let place = self.place_after(&main, redirect.as_ref());
        entry.asks = matches!(redirect, Some(Redirect::Ask { .. }));
        if place.is_lobby() && redirect.is_none() && self.places.version() > 0 {
            // The map is there, and names nobody.
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
            Origin::Part(..) | Origin::Query(_) => {}
        }
        self.put_at(&place, entry, work);
    }

    fn place_after(&self, main: &str, redirect: Option<&Redirect>) -> PlaceOf<'_> {
        match redirect {
            Some(Redirect::Moved { slot, to }) => self.moved(*slot, to),
            Some(Redirect::Ask { to }) => {
                if let Some(place) = self.places.named(to) {
                    return PlaceOf::Found(place);
                }
            }
            None => {}
        }
        self.places.of(main)
    }

    /// What was refused, or has an unknown outcome, may have been asked at the wrong node.
    pub(super) fn doubt_map(&self, outcome: &Outcome) {
        if let Outcome::Refused(_) | Outcome::Unknown(_) = outcome {
            self.look_soon();
        }
    }
}
