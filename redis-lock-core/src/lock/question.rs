//! Questions to the server, and their outcomes.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::store::{Answer, Command};

/// A question to the server.
#[derive(Debug)]
pub(crate) struct Question {
    /// Identifies the question: the machine accepts only the outcome with this number.
    pub(crate) number: u64,
    pub(crate) command: Command,
}

/// The outcome of a question. Every question has exactly one.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answered(Answer),
    /// It was certainly not executed.
    Refused(Fault),
    /// Its connection ended without an answer: it may have been executed, or may still be.
    Unknown(Fault),
}

impl From<Result<Answer, Fault>> for Outcome {
    fn from(answer: Result<Answer, Fault>) -> Self {
        match answer {
            Ok(answer) => Self::Answered(answer),
            Err(fault) if fault.class.is_unknown() => Self::Unknown(fault),
            Err(fault) => Self::Refused(fault),
        }
    }
}

impl From<Outcome> for Result<Answer, Fault> {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Refused(fault) | Outcome::Unknown(fault) => Err(fault),
        }
    }
}

impl Outcome {
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self, Self::Answered(_))
    }
}

/// An open question: it has no outcome yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) about: About,
    /// The lease that it asks for.
    pub(super) ttl: Option<Duration>,
    /// When it was created, which is before any of its bytes were sent. Leases are counted from
    /// here.
    pub(super) sent: Moment,
    /// When the answer counts as missed. The question stays open, and its answer still counts, but
    /// the hold becomes uncertain.
    pub(super) late_at: Moment,
    /// The callers that wait for the outcome.
    pub(super) askers: Askers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    Take,
    /// Acquires the lock. `queues` says whether a place in the queue is asked for as well.
    Acquire {
        queues: bool,
        ordered: bool,
    },
    Renew,
    /// Cuts a lease that is longer than anything that was asked for.
    Cut,
    Check,
    /// Asks whether a newer call has come.
    Newer,
    Downgrade,
}

/// What callers want of a hold, collected while a question is open.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) askers: Askers,
    /// Set if the server may have lost the downgrade of a writer to a reader. The downgrade is repeated
    /// after a renewal that was sent then or later has its answer.
    pub(super) downgrade: Option<Moment>,
    /// Whether the server's lease is longer than anything that was asked for.
    pub(super) cut: bool,
}

impl Wanted {
    /// Takes out the callers that a question of this sort answers.
    pub(super) fn take(&mut self, about: About) -> Askers {
        let served = |asker: &HoldRequest| match about {
            About::Renew => !matches!(asker.wants, Wants::Downgrade),
            About::Check => asker.wants == Wants::Check,
            About::Downgrade => asker.wants == Wants::Downgrade,
            About::Take | About::Acquire { .. } | About::Cut | About::Newer => false,
        };
        self.askers.extract_if(.., |asker| served(asker)).collect()
    }

    /// The longest lease that a caller wants.
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

/// Reports to a caller the outcome of what it asked for.
pub(crate) type Confirm = oneshot::Sender<Result<(), LockError>>;

/// A caller that wants something of a hold.
#[derive(Debug)]
pub(super) struct HoldRequest {
    pub(super) confirm: Confirm,
    /// When it gets the error that no answer came in time.
    pub(super) deadline: Moment,
    pub(super) wants: Wants,
}

/// What it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    /// A lease of at least this ttl from now on.
    Extend(Duration),
    /// To know whether the token still has the lock.
    Check,
    /// To go on as a reader.
    Downgrade,
}

/// The callers that wait for something about their hold.
pub(super) type Askers = Vec<HoldRequest>;

/// The earliest time limit of these callers.
pub(super) fn deadline(askers: &[HoldRequest]) -> Moment {
    askers.iter().map(|asker| asker.deadline).fold(Moment::NEVER, Moment::min)
}
