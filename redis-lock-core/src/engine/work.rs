//! What is left to be done after the steps of machines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use tokio::runtime;

use super::notices::Notice;
use super::path::{InHand, Settled};
use super::places::Place;
use super::resident::{Handle, UsedHandles};
use super::wake_together::WakeTogether;
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
    /// Notices for callers on other runtimes.
    pub(super) elsewhere: Vec<(runtime::Id, VecDeque<Notice>)>,
    pub(super) effects: Effects<Handle>,
    /// The caller that was handed the lock by whoever gave it back. It is woken before the notices.
    pub(super) next_holder: Option<Waker>,
    /// What callers that were handed the lock like that were notified by, for the next callers.
    pub(super) used_handles: UsedHandles,
    /// Whether an entry was put on the queue of the only place, and has to be sent.
    pub(super) is_put: bool,
    /// The places on whose queues entries were put, if there are several places.
    pub(super) touched: Vec<Arc<Place>>,
    /// Whether too many leases linger.
    pub(super) has_too_many_idle: bool,
    /// How a reading task wakes other tasks.
    pub(super) together: Option<WakeTogether>,
    /// Whether this is the engine's own turn, which need not wake the engine.
    pub(super) is_turn: bool,
}

impl Work {
    /// Sets aside the answers among the notices from this one on, which are for callers on another
    /// runtime.
    pub(super) fn set_aside(&mut self, first: usize, runtime: runtime::Id) {
        let at = self.elsewhere.iter().position(|(id, _)| *id == runtime);
        let at = at.unwrap_or_else(|| {
            self.elsewhere.push((runtime, VecDeque::new()));
            self.elsewhere.len() - 1
        });
        let Some((_, aside)) = self.elsewhere.get_mut(at) else { return };
        let mut next = first;
        while let Some(notice) = self.notices.get(next) {
            if notice.is_answer() {
                aside.extend(self.notices.remove(next));
            } else {
                next += 1;
            }
        }
    }

    /// Notes that an entry was put on the queue of the only place.
    pub(super) fn send_only_place(&mut self) {
        self.is_put = true;
    }

    /// Notes that an entry was put on the queue of this place.
    pub(super) fn touch(&mut self, place: &Arc<Place>) {
        touch(&mut self.touched, place);
    }
}

pub(super) fn touch(touched: &mut Vec<Arc<Place>>, place: &Arc<Place>) {
    if !touched.iter().any(|other| other.id == place.id) {
        touched.push(Arc::clone(place));
    }
}
