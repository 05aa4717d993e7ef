//! The machine of a lock at its place in the table.

use std::num::NonZeroU64;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::lock_id::LockId;
use super::waiting_line::Spot;
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::lock::hold::Hold;
use crate::lock::{Effects, Env, Machine, QueuePlace, Rank};
use crate::store::contained::contained;
use crate::{LockError, LossReason};

/// What a caller waits for. The error is in a box, because it is large and rare.
pub(crate) type Granted = Result<Arc<Hold>, Box<LockError>>;

/// How a waiter is notified.
pub(crate) type Handle = oneshot::Sender<Granted>;

/// A machine, and the data that is derived from it.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) machine: Machine<Handle>,
    /// When its timer is due; `NEVER` without one.
    pub(super) timer: Moment,
    /// The token by which messages may refer to it.
    pub(crate) indexed: Option<Arc<str>>,
    /// Its place in the server's queue, if it has one.
    pub(super) place: Option<QueuePlace>,
    /// Where it stands among the machines of this process that are in that queue.
    pub(super) spot: Option<Spot>,
    /// The number of its entry in the list of idle leases.
    pub(crate) idle_entry: Option<NonZeroU64>,
    /// The version of the routing that its open question was sent with, when there are several
    /// places.
    pub(crate) asked: u64,
}

impl Resident {
    pub(super) fn new() -> Self {
        Self {
            machine: Machine::new(),
            timer: Moment::NEVER,
            indexed: None,
            place: None,
            spot: None,
            idle_entry: None,
            asked: 0,
        }
    }

    /// A bug made the machine panic. What it knew may be wrong, so its hold ends as lost, and those who
    /// wait are refused.
    pub(super) fn fail(&mut self, fault: &Fault, env: &Env<'_>, out: &mut Effects<Handle>) {
        let error = LockError::backend(None, fault);
        let reason = LossReason::Removed { because: Some(fault.what.clone()) };
        if contained(|| self.machine.close(&error, &reason, env, out)).is_err() {
            self.machine = Machine::new();
        }
    }

    /// Where it stands among the machines of this process for the same key.
    pub(super) fn rank(&self, id: &LockId) -> Rank {
        match self.spot {
            _ if !id.has_own_machine() => Rank::Alone,
            Some(Spot::Behind(_)) => Rank::Behind,
            Some(Spot::Front) | None => Rank::Front,
        }
    }

    /// Whether it has another place in the server's queue than what was noted, or none any more.
    pub(super) fn changes_line(&self) -> bool {
        self.machine.place() != self.place
    }
}
