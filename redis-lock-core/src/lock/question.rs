//! What is asked of the server, and what comes of it.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::store::{Answer, Command};

/// Reports to a caller the outcome of what it asked for.
pub(crate) type Confirm = oneshot::Sender<Result<(), LockError>>;

/// A question on its way to the server.
#[derive(Debug)]
pub(crate) struct Question {
    /// Names it: its outcome, and no other, is taken by the machine that asked it.
    pub(crate) number: u64,
    pub(crate) command: Command,
}

/// What becomes of a question: exactly one of these, once.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answered(Answer),
    /// It was certainly not executed.
    Refused(Fault),
    /// Its connection is gone, and any answer with it: it was executed, or may be yet, or not.
    Unknown(Fault),
}

/// The question of a machine that has had no outcome yet, with its own terms.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) about: About,
    /// The lease that it asks for.
    pub(super) ttl: Option<Duration>,
    /// When it was made, which is before any of its bytes were sent. Leases are counted from here.
    pub(super) sent: Moment,
    /// When an answer that has not come counts as missed: the question goes on, and its answer still
    /// counts, but whoever relies on the lease is to know.
    pub(super) late_at: Moment,
    /// Who wants to know.
    pub(super) askers: Vec<HoldRequest>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    Take,
    /// Whether a place in the queue was asked for as well.
    Acquire {
        queues: bool,
        ordered: bool,
    },
    Renew,
    /// A lease that is longer than anything we asked for is cut to what we did.
    Cut,
    Check,
    Downgrade,
}

/// A caller who wants something of a hold.
#[derive(Debug)]
pub(super) struct HoldRequest {
    pub(super) confirm: Confirm,
    /// When it learns that no answer came.
    pub(super) deadline: Moment,
    pub(super) wants: Wants,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    Extend(Duration),
    Check,
    Downgrade,
}

/// What callers want of a hold while a question about it is open.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) askers: Vec<HoldRequest>,
    /// Nobody in particular wants to know whether the hold stands.
    pub(super) check: bool,
    /// The server has a longer lease for us than we ever asked for.
    pub(super) cut: bool,
}

impl Wanted {
    /// When the first of them learns that no answer came.
    pub(super) fn deadline(&self) -> Moment {
        self.askers.iter().map(|asker| asker.deadline).fold(Moment::NEVER, Moment::min)
    }

    /// Takes those out who get their answer from a question of this sort.
    pub(super) fn take(&mut self, about: About) -> Vec<HoldRequest> {
        let served = |asker: &mut HoldRequest| match about {
            About::Renew => !matches!(asker.wants, Wants::Downgrade),
            About::Check => asker.wants == Wants::Check,
            About::Downgrade => asker.wants == Wants::Downgrade,
            About::Take | About::Acquire { .. } | About::Cut => false,
        };
        self.askers.extract_if(.., served).collect()
    }

    /// The longest lease that somebody wants.
    pub(super) fn extension(&self) -> Option<Duration> {
        let longer = self.askers.iter().filter_map(|asker| match asker.wants {
            Wants::Extend(ttl) => Some(ttl),
            Wants::Check | Wants::Downgrade => None,
        });
        longer.max()
    }

    pub(super) fn wants(&self, wants: Wants) -> bool {
        self.askers.iter().any(|asker| asker.wants == wants)
    }
}
