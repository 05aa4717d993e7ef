//! What a step of a machine wants done.

use std::sync::Arc;

use super::{Confirm, Env, Hold, Question, Reap};
use crate::LockError;
use crate::domain::demand::Demand;
use crate::domain::error::Fault;
use crate::domain::idle_event::{IdleEvent, KeyUse};
use crate::store::Command;

/// What one step of a machine wants done, in order.
#[derive(Debug)]
pub(crate) struct Effects<W> {
    /// What goes to the server, in this order.
    pub(crate) out: Vec<Outgoing>,
    /// What runs the user's code: after all locks are released.
    pub(crate) later: Vec<Later<W>>,
    /// What was learnt of how the key is used.
    pub(crate) key_use: Option<KeyUse>,
}

/// Something for the server.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Ask(Question),
    Part(Box<Reap>),
    /// Something that nobody waits for.
    Message(Command),
}

/// Something that runs code of the user: wakers, subscribers, and what they do.
#[derive(Debug)]
pub(crate) enum Later<W> {
    /// Hand this hold to the waiter. When nobody takes it, release it.
    Grant(W, Arc<Hold>),
    /// The waiter gets no lock.
    Fail(W, LockError),
    /// Report to a caller the outcome of what it asked for.
    Confirm(Confirm, Result<(), LockError>),
    /// This hold was lost: wake those who wait for that, and notify subscribers.
    Lost(Arc<Hold>),
    /// Another process has the lock, with the value that stands there.
    Contended(Arc<Demand>, Option<String>),
    /// The lease of this hold was renewed.
    Renewed(Arc<Hold>),
    /// A renewal was missed; the lease still runs.
    Missed(Arc<Demand>, Fault),
    /// A question about a lock failed.
    Fault(Arc<Demand>, Fault),
    /// Something happened to a lease that lingers.
    Idle(IdleEvent),
    /// Nobody refers to this hold here any more; its span ends with the last reference.
    Drop(Arc<Hold>),
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self { out: Vec::new(), later: Vec::new(), key_use: None }
    }
}

impl<W> Effects<W> {
    pub(super) fn fail(&mut self, waiter: W, error: LockError) {
        self.later.push(Later::Fail(waiter, error));
    }

    pub(super) fn confirm(&mut self, confirm: Option<Confirm>, outcome: Result<(), LockError>) {
        if let Some(confirm) = confirm {
            self.later.push(Later::Confirm(confirm, outcome));
        }
    }

    /// Reports what happened to a lease that lingers, where somebody listens.
    pub(super) fn idle(&mut self, event: IdleEvent, env: &Env<'_>) {
        if env.listening {
            self.later.push(Later::Idle(event));
        }
    }

    pub(super) fn part(&mut self, reap: Option<Reap>) {
        self.out.extend(reap.map(|reap| Outgoing::Part(Box::new(reap))));
    }
}
