//! What nested calls need to know about a hold.

use std::sync::Arc;

use tokio::task;

use crate::domain::clock::Moment;
use crate::engine::LockId;
use crate::lock::hold::Hold;
use crate::{Locks, LossReason};

/// One hold of a body that is being polled.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// The task that polls the body, if the runtime has task ids.
    pub(super) task: Option<task::Id>,
    /// Which manager, by the address of its engine.
    pub(super) manager: usize,
    pub(super) id: LockId,
    pub(super) hold: Arc<Hold>,
    /// For a hold that joined an outer one: its turn among its siblings.
    pub(super) turn: Option<Arc<JoinedTurn>>,
}

/// The turn of a guard that joined an outer hold. Guards that joined the same hold exclude each other
/// by it.
#[derive(Debug)]
pub(crate) struct JoinedTurn {
    pub(super) hold: Arc<Hold>,
    /// The turn of the guard that it joined, if that guard had joined as well.
    pub(super) outer: Option<Arc<Self>>,
}

impl JoinedTurn {
    /// This turn and those around it.
    pub(super) fn chain(turn: Option<&Self>) -> impl Iterator<Item = &Arc<Hold>> {
        std::iter::successors(turn, |turn| turn.outer.as_deref()).map(|turn| &turn.hold)
    }
}

impl Note {
    pub(crate) fn new(
        locks: &Locks,
        id: &LockId,
        hold: &Arc<Hold>,
        turn: Option<&Arc<JoinedTurn>>,
    ) -> Self {
        Self {
            task: task::try_id(),
            manager: address(locks),
            id: id.clone(),
            hold: Arc::clone(hold),
            turn: turn.map(Arc::clone),
        }
    }

    /// The hold, and the turns that a guard which joins it depends on.
    fn all(&self) -> impl Iterator<Item = &Arc<Hold>> {
        std::iter::once(&self.hold).chain(JoinedTurn::chain(self.turn.as_deref()))
    }

    /// Why it can't be joined, if that is so.
    pub(super) fn end(&self, now: Moment) -> Option<LossReason> {
        self.all().find_map(|hold| hold.end(now))
    }

    /// A guard is about to join it.
    pub(super) fn join(&self) {
        self.all().for_each(|hold| hold.join());
    }
}

/// Tells managers apart.
pub(super) fn address(locks: &Locks) -> usize {
    Arc::as_ptr(locks.link()).addr()
}
