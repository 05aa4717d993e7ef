//! Callers that wait for an answer, and what they are told.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::LockError;
use crate::domain::fault::Fault;
use crate::lock::{Confirm, Confirmation};
use crate::store::Answer;

/// Answers a caller whose command belongs to no machine.
pub(crate) type AnswerTo = oneshot::Sender<Result<Answer, Fault>>;

/// Tells a caller whether the server can be used.
pub(crate) type ReadyReply = oneshot::Sender<Result<(), Fault>>;

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
