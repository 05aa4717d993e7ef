//! What is left to be done after steps.

use std::collections::VecDeque;
use std::sync::Arc;

use super::notices::Notice;
use super::path::{InHand, QueueEntry, Settled};
use super::places::Place;
use super::table::Handle;
use crate::lock::Effects;

/// What has to be done after a step: outcomes to hand over, entries to send, notices to carry out.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Outcomes that have to be handed to those who asked.
    pub(super) settled: Vec<Settled>,
    /// What counts those as in hand at their places, until what their machines ask next is on a queue.
    pub(super) hands: Vec<InHand>,
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

/// Puts an entry on the queue of a place, and notes that it is to be sent.
pub(super) fn put_on(
    place: &Arc<Place>,
    entry: QueueEntry,
    settled: &mut Vec<Settled>,
    touched: &mut Vec<Arc<Place>>,
) {
    place.path.put(entry, settled);
    if !touched.iter().any(|other| other.id == place.id) {
        touched.push(Arc::clone(place));
    }
}
