//! What nested calls need to know about a hold.

use std::sync::Arc;

use tokio::task;

use crate::Locks;
use crate::engine::LockId;
use crate::lock::hold::Hold;

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
    pub(super) turn: Option<Arc<Hold>>,
}

impl Note {
    pub(crate) fn new(
        locks: &Locks,
        id: &LockId,
        hold: &Arc<Hold>,
        turn: Option<&Arc<Hold>>,
    ) -> Self {
        Self {
            task: task::try_id(),
            manager: address(locks),
            id: id.clone(),
            hold: Arc::clone(hold),
            turn: turn.map(Arc::clone),
        }
    }
}

/// Tells managers apart.
pub(super) fn address(locks: &Locks) -> usize {
    Arc::as_ptr(locks.link()).addr()
}
