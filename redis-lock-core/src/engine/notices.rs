//! Notices run the user's code, such as wakers, and drop what they hold. Subscribers have a separate
//! thread.
//!
//! No notice runs while a mutex of the engine is locked, and none runs on the engine's thread.
//! Threads take notices from one list and carry them out one at a time. A notice that panics or
//! blocks for ever keeps no answer from other callers: another thread takes the rest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::path::{QueueEntry, Told};
use super::places::Place;
use super::table::Handle;
use crate::lock::{Effects, Later};

/// Something that runs the user's code. It is moved from list to list, so what is large and rare is in
/// a box.
#[derive(Debug)]
pub(crate) enum Notice {
    /// What a step of a machine wants done.
    Later(Later<Handle>),
    Told(Told),
    /// Wakes one of several who are woken by the same.
    Wake(Waker),
    /// A task of the current runtime is asked to read.
    AskTask(super::places::PlaceId),
}

/// What follows a step: outcomes to hand over, entries to send, notices to carry out.
#[derive(Default)]
pub(crate) struct Work {
    /// Outcomes that have to be handed to those who asked.
    pub(super) settled: Vec<QueueEntry>,
    /// What runs the user's code, to be done last.
    pub(super) notices: VecDeque<Notice>,
    pub(super) effects: Effects<Handle>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_small() {
        assert!(size_of::<Notice>() <= 48, "{}", size_of::<Notice>());
        assert!(size_of::<Later<Handle>>() <= 64, "{}", size_of::<Later<Handle>>());
    }
}
