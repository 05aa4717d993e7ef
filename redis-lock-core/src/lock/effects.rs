//! The effects of a machine's step.

use std::sync::Arc;

use super::{Confirm, Env, Hold, Machine, Question, Reap};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::error::Fault;
use crate::domain::kind::LockSort;
use crate::domain::names::Names;
use crate::domain::status::IdleEvent;
use crate::store::Command;
use crate::{LockError, Token};

/// What has to be done after one step of a machine, in order.
#[derive(Debug)]
pub(crate) struct Effects<W> {
    /// What to send to the server, in this order.
    pub(crate) out: Vec<Outgoing>,
    /// What runs the user's code, to be done when no lock of the engine is held.
    pub(crate) later: Vec<Later<W>>,
    /// Set when another process has asked for a lease that could linger: whether it was taken again here
    /// before, without a command.
    pub(crate) asked_away: Option<bool>,
    /// The stages that were taken out, in case a bug makes the step panic before it has brought their
    /// tokens to safety.
    pub(crate) moved: Vec<Moved>,
}

/// What a stage has on the server. While a step moves the stage, a panic would drop it.
#[derive(Debug)]
pub(crate) enum Moved {
    /// A token that no guard relies on, with the demand that it was made for.
    Token(Token, Arc<Demand>),
    Hold(Arc<Hold>),
}

/// Something to send to the server.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Ask(Question),
    Part(Box<Reap>),
    /// A command that no caller waits for.
    Message(Command),
}

impl Outgoing {
    /// The names of the lock that it asks for, if it is an acquisition.
    pub(crate) fn acquires(&self) -> Option<&Names> {
        let Self::Ask(Question { command, .. }) = self else { return None };
        command.verb.acquires().then_some(&command.names)
    }
}

/// Something that runs the user's code: wakers and subscribers. It is moved several times, so what is
/// large and rare is in a box.
#[derive(Debug)]
pub(crate) enum Later<W> {
    /// Hand this hold to the waiter. If the waiter is gone, release it.
    Grant(W, Arc<Hold>),
    /// Tell the waiter that it does not get the lock.
    Fail(W, Box<LockError>),
    /// Report to a caller the outcome of what it asked for.
    Confirm(Confirm, Result<(), Box<LockError>>),
    /// This hold was lost: wake those who wait for the loss, and notify subscribers.
    Lost(Arc<Hold>),
    /// Another process has the lock, with this value at the key.
    Contended(Arc<Demand>, Option<String>),
    /// A call waits for long; what it would be told if it gave up now.
    LongWait(Arc<Demand>, Box<LockError>),
    /// The lease of this hold was renewed.
    Renewed(LockSort),
    /// A renewal was missed; the lease still runs. Once, until the next renewal.
    Missed(Arc<Demand>, Fault),
    /// A question about a lock failed.
    Fault(Arc<Demand>, Fault),
    /// Something happened to a lease that lingers.
    Idle(LockSort, IdleEvent),
    /// A bug has broken this machine. It has wakers, so it is dropped when no lock of the engine is held.
    Broken(Box<Machine<W>>),
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self { out: Vec::new(), later: Vec::new(), asked_away: None, moved: Vec::new() }
    }
}

impl<W> Effects<W> {
    pub(super) fn fail(&mut self, waiter: W, error: LockError) {
        self.later.push(Later::Fail(waiter, Box::new(error)));
    }

    pub(super) fn confirm(&mut self, confirm: Confirm, outcome: Result<(), LockError>) {
        self.later.push(Later::Confirm(confirm, outcome.map_err(Box::new)));
    }

    /// A try to renew the lease failed. A renewal that is due is missed once, however often it is tried.
    pub(super) fn doubt(&mut self, hold: &Hold, fault: Fault, now: Moment) {
        let demand = Arc::clone(&hold.demand);
        let is_first = hold.doubted(now);
        self.later.push(if is_first {
            Later::Missed(demand, fault)
        } else {
            Later::Fault(demand, fault)
        });
    }

    /// Reports what happened to a lease that lingers, if there is a subscriber.
    pub(super) fn idle(&mut self, sort: LockSort, event: IdleEvent, env: &Env<'_>) {
        if env.listening {
            self.later.push(Later::Idle(sort, event));
        }
    }

    pub(super) fn part(&mut self, reap: Option<Box<Reap>>) {
        self.out.extend(reap.map(Outgoing::Part));
    }
}
