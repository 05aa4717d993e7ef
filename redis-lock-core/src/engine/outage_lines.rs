//! Notices the failures of servers and their ends, and gives operators the lines about them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::core::{Core, Work};
use super::notices::{Notice, Observation};
use super::outages::OutageLine;
use super::places::{Place, PlaceId, UNROUTED};
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::error::{Fault, FaultClass};
use crate::lock::Outcome;
use crate::store::Answer;

/// Whether a failure says something of the server, and not only of one lock.
fn is_of_server(fault: &Fault) -> bool {
    let is_of_lock = matches!(fault.class, FaultClass::Misuse | FaultClass::Unsupported);
    !is_of_lock && !fault.class.is_moving() && fault.kind != BackendErrorKind::Foreign
}

/// Notices that give operators their lines.
fn notices(lines: impl IntoIterator<Item = OutageLine>) -> impl Iterator<Item = Notice> {
    lines.into_iter().map(|line| Notice::observe(Observation::Outage(line)))
}

impl Core {
    /// A question of a machine has its outcome.
    pub(super) fn note_outcome(
        &self,
        place: &Place,
        outcome: &Outcome,
        list: &mut VecDeque<Notice>,
    ) {
        match outcome {
            Outcome::Answered(_) if !self.outages.are_any() => {}
            Outcome::Answered(answer) => {
                let has_written = matches!(answer, Answer::Held { .. });
                list.extend(notices(self.outages.answers(place.id, has_written, Moment::now())));
            }
            // The path tells if the next connection can't be made either.
            Outcome::Unknown(fault) if fault.kind == BackendErrorKind::Unreachable => {}
            Outcome::Refused(fault) | Outcome::Unknown(fault) => {
                if is_of_server(fault) && !self.is_shut() {
                    list.extend(notices(self.outages.fails(place, fault, Moment::now()).1));
                }
            }
        }
    }

    /// A renewal of a lock was missed. Operators are told of the first lock of each outage, because
    /// all locks of a server miss theirs at the same time.
    pub(super) fn note_missed(
        &self,
        place: &Place,
        demand: Arc<Demand>,
        fault: Fault,
        list: &mut VecDeque<Notice>,
    ) {
        let now = Moment::now();
        let (is_first, line) = match fault.kind {
            BackendErrorKind::Unreachable => self.outages.disconnects(place, &fault, now),
            _ => self.outages.fails(place, &fault, now),
        };
        list.extend(notices(line));
        list.push_back(Notice::observe(Observation::Missed { demand, fault, is_first }));
    }

    /// A connection can't be made.
    pub(super) fn note_unreachable(&self, place: &Place, fault: &Fault, work: &mut Work) {
        let line = self.outages.disconnects(place, fault, Moment::now()).1;
        work.notices.extend(notices(line));
    }

    /// A connection was made.
    pub(super) fn note_connected(&self, place: PlaceId, work: &mut Work) {
        work.notices.extend(notices(self.outages.connects(place, Moment::now())));
    }

    /// The map was read.
    pub(super) fn note_places(&self, work: &mut Work) {
        if self.outages.are_any() {
            let places: Vec<_> = self.places.all().iter().map(|place| place.id).collect();
            let now = Moment::now();
            let lines = self.outages.connects(UNROUTED, now);
            let gone = self.outages.retain(&places, now);
            work.notices.extend(notices(lines.into_iter().chain(gone)));
        }
    }
}
