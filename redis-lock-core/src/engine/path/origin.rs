//! On whose behalf a command is sent.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Entry;
use crate::LockError;
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::lock::{Confirm, Confirmation, Outcome, Reap};
use crate::store::Answer;
use crate::store::groups::{NextPart, Split};
use crate::sync::{NonPoisonGuard, NonPoisonMutex};

/// Identifies a machine: by the key for a mutex, by key and number for locks that several can hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LockId {
    pub(crate) main: Arc<str>,
    /// 0 for a mutex.
    pub(in crate::engine) number: u64,
}

impl LockId {
    /// The machine of a demand. `number` distinguishes acquisitions that don't share a machine.
    pub(crate) fn of(demand: &Demand, number: impl FnOnce() -> u64) -> Self {
        // An adoption must not wait behind those who wait for the end of the same hold, and `queue`
        // and `newest` are about calls.
        let is_alone = demand.adopts.is_some() || demand.terms.is_alone();
        let has_own_machine = !demand.kind.is_pooled() || is_alone;
        let number = match (has_own_machine, demand.terms.share) {
            (true, _) => number(),
            // Their place in the server's line tells what they get, so others have no part in it.
            (false, true) => u64::MAX,
            (false, false) => 0,
        };
        Self { main: demand.names.shared_main(), number }
    }

    /// Whether it is a separate machine, whose lock may have keys of several slots.
    pub(crate) fn has_own_machine(&self) -> bool {
        self.number != 0
    }

    pub(crate) fn mutex(main: &str) -> Self {
        Self { main: main.into(), number: 0 }
    }
}

/// Answers a caller whose command belongs to no machine.
pub(crate) type AnswerTo = oneshot::Sender<Result<Answer, Fault>>;

/// Tells a caller whether the server can be used.
pub(crate) type ReadyReply = oneshot::Sender<Result<(), Fault>>;

/// On whose behalf a command is sent.
#[derive(Debug)]
pub(crate) enum AskedBy {
    /// The machine of a lock, for its question with this number.
    Lock(LockId, u64),
    /// The release of a token.
    Reap(Box<Reap>),
    /// One of several parts, each for the keys of one slot.
    Part(Arc<Gathering>, usize),
    /// A caller that looks at locks; `None` after its time limit has passed.
    Query(Option<AnswerTo>),
    /// The path itself, to check the connection.
    Ping,
}

impl AskedBy {
    /// Whether a caller waits for the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Lock(..) | Self::Query(_) => true,
            Self::Reap(reap) => reap.is_awaited(),
            Self::Part(gathering, _) => gathering.is_awaited(),
            Self::Ping => false,
        }
    }

    /// Takes out the caller, to tell it that no answer came in time.
    pub(crate) fn overdue(&mut self) -> Option<Told> {
        match self {
            Self::Query(reply) => Some(Told::reply(reply.take()?, Err(Fault::no_answer()))),
            Self::Reap(reap) => reap.overdue().map(Told::release),
            Self::Part(gathering, _) => gathering.overdue(),
            Self::Lock(..) | Self::Ping => None,
        }
    }

    /// The token that it releases.
    #[cfg(test)]
    pub(crate) fn leaving(&self) -> Option<Arc<str>> {
        match self {
            Self::Reap(reap) => Some(Arc::clone(reap.attempt().wire())),
            Self::Part(gathering, _) => gathering.gathered().entry.as_ref()?.origin.leaving(),
            Self::Lock(..) | Self::Query(_) | Self::Ping => None,
        }
    }
}

/// A caller, and its answer. It is moved from list to list, so large parts are boxed.
#[derive(Debug)]
pub(crate) enum Told {
    Reply(AnswerTo, Box<Result<Answer, Fault>>),
    Ready(ReadyReply, Box<Result<(), Fault>>),
    Release(Confirm, Result<(), Box<LockError>>),
}

impl Told {
    pub(crate) fn reply(reply: AnswerTo, answer: Result<Answer, Fault>) -> Self {
        Self::Reply(reply, Box::new(answer))
    }

    pub(crate) fn ready(reply: ReadyReply, outcome: Result<(), Fault>) -> Self {
        Self::Ready(reply, Box::new(outcome))
    }

    pub(crate) fn release((confirm, outcome): Confirmation) -> Self {
        Self::Release(confirm, outcome.map_err(Box::new))
    }

    /// Tells it. The caller may be gone, which changes nothing.
    pub(crate) fn tell(self) {
        match self {
            Self::Reply(reply, answer) => drop(reply.send(*answer)),
            Self::Ready(reply, outcome) => drop(reply.send(*outcome)),
            Self::Release(confirm, outcome) => {
                drop(confirm.send(outcome.map_err(|error| *error)));
            }
        }
    }
}

/// A command that was split into parts, until it has its one outcome.
#[derive(Debug)]
pub(crate) struct Gathering(pub(super) NonPoisonMutex<Gathered>);

#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) split: Split,
    /// What was split; `None` once the outcome is known.
    pub(super) entry: Option<Entry>,
}

impl Gathering {
    /// A part has its outcome. Returns the next step, if this was the last missing part.
    pub(crate) fn answered(&self, group: usize, outcome: Outcome) -> Option<NextPart> {
        let mut gathered = self.gathered();
        gathered.split.answered(group, outcome.into());
        gathered.split.next()
    }

    /// The machine that asked, and the number of its question. The outer `None` means that no caller
    /// wants the answer.
    pub(crate) fn asked_by(&self) -> Option<Option<(LockId, u64)>> {
        match &self.gathered().entry.as_ref()?.origin {
            AskedBy::Lock(id, number) => Some(Some((id.clone(), *number))),
            _ => Some(None),
        }
    }

    pub(super) fn gathered(&self) -> NonPoisonGuard<'_, Gathered> {
        self.0.lock()
    }

    /// Takes out the origin, when no thread is left to carry it out.
    pub(crate) fn take_origin(&self) -> Option<AskedBy> {
        self.gathered().entry.take().map(|entry| entry.origin)
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.gathered().entry.as_ref().is_some_and(|entry| entry.origin.is_awaited())
    }

    pub(crate) fn overdue(&self) -> Option<Told> {
        self.gathered().entry.as_mut()?.origin.overdue()
    }
}

/// Counts such outcomes.
#[derive(Debug, Default)]
pub(super) struct InHandCount(Arc<()>);

impl InHandCount {
    pub(super) fn take(&self) -> InHand {
        InHand(Some(Arc::clone(&self.0)))
    }

    pub(super) fn is_empty(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// Counts as one such outcome until it is dropped; the default counts as nothing.
#[derive(Debug, Default)]
pub(crate) struct InHand(
    #[expect(dead_code, reason = "it is counted by what it refers to")] Option<Arc<()>>,
);
