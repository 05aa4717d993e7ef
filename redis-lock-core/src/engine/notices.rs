//! Notices: what runs the user's code, such as wakers, subscribers, and the drops of what they
//! hold.
//!
//! No notice runs while a lock of the engine is held, and none runs on the engine's thread. Each is
//! taken from one list and carried out by itself. So one that panics, or blocks for ever, keeps no
//! answer from others: another thread takes the rest.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Waker;

use super::notice_list::NoticeList;
use super::path::{InHand, LockId, QueueEntry, ReadyReply, Reply, Settled};
use super::places::Place;
use super::table::Handle;
use crate::LockError;
use crate::domain::error::Fault;
use crate::lock::hold::Hold;
use crate::lock::{Confirm, Confirmation, Effects, Later, Machine};
use crate::observe::{Audience, Observation};
use crate::store::Answer;

/// Something that runs the user's code. It is moved from list to list, so what is large and rare is in
/// a box.
#[derive(Debug)]
pub(crate) enum Notice {
    Grant(LockId, Handle, Arc<Hold>),
    Fail(Handle, Box<LockError>),
    Confirm(Confirm, Result<(), Box<LockError>>),
    Reply(Reply, Box<Result<Answer, Fault>>),
    Ready(ReadyReply, Box<Result<(), Fault>>),
    Lost(Arc<Hold>),
    Observe(Box<Observation>),
    /// Wakes one of several who are woken by the same.
    Wake(Waker),
    /// What a bug has left of a machine, with its wakers.
    Broken(Box<Machine<Handle>>),
    /// A task of the current runtime takes the role of the reader.
    OpenReader(super::places::PlaceId),
}

impl Notice {
    pub(super) fn confirm((confirm, outcome): Confirmation) -> Self {
        Self::Confirm(confirm, outcome.map_err(Box::new))
    }

    pub(super) fn reply(reply: Reply, answer: Result<Answer, Fault>) -> Self {
        Self::Reply(reply, Box::new(answer))
    }

    pub(super) fn observe(observation: Observation) -> Self {
        Self::Observe(Box::new(observation))
    }

    pub(super) fn of(id: &LockId, later: Later<Handle>) -> Self {
        match later {
            Later::Grant(handle, hold) => Self::Grant(id.clone(), handle, hold),
            Later::Fail(handle, error) => Self::Fail(handle, error),
            Later::Confirm(confirm, outcome) => Self::Confirm(confirm, outcome),
            Later::Lost(hold) => Self::Lost(hold),
            Later::Missed(demand, fault) => {
                Self::observe(Observation::Missed { demand, fault, is_first: true })
            }
            Later::Observe(observation) => Self::Observe(observation),
            Later::Broken(machine) => Self::Broken(machine),
        }
    }
}

/// The notices that the engine or a reading task wants carried out.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    list: NoticeList<Notice>,
    /// Those who must not occupy all threads.
    pub(super) audience: Audience,
}

impl Deref for Notices {
    type Target = NoticeList<Notice>;

    fn deref(&self) -> &NoticeList<Notice> {
        &self.list
    }
}

/// What has to be done after a step: outcomes to hand over, entries to send, notices to carry out.
#[derive(Default)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_small() {
        assert!(size_of::<Notice>() <= 48, "{}", size_of::<Notice>());
        assert!(size_of::<Later<Handle>>() <= 64, "{}", size_of::<Later<Handle>>());
    }
}
