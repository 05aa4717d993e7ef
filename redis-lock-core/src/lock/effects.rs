//! The effects of a step of a machine, its end, and what becomes of its tokens when a bug makes it panic.

use std::sync::Arc;

use super::{Attempt, Confirm, Env, Hold, Machine, Question, Reap, Stage, WaitingCall};
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::domain::kind::LockSort;
use crate::domain::names::Names;
use crate::domain::status::{IdleEnd, IdleEvent};
use crate::domain::value::StoredValue;
use crate::observe::Observation;
use crate::store::Command;
use crate::store::wire::contained;
use crate::{LockError, LossReason, Token};

/// What follows one step of a machine, in order.
#[derive(Debug)]
pub(crate) struct Effects<W> {
    /// What to send to the server, in this order.
    pub(crate) out: Vec<Outgoing>,
    /// What runs the user's code, to be done when no lock of the engine is held.
    pub(crate) later: Vec<Later<W>>,
    /// Whether a subscriber listens to events.
    pub(crate) listening: bool,
    /// Set when a call has joined that ends older ones.
    pub(crate) ends_older: bool,
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
    /// Give the waiter the value of the call that it has waited for.
    Share(W, Box<StoredValue>),
    /// Tell the waiter that it does not get the lock.
    Fail(W, Box<LockError>),
    /// Report to a caller the outcome of what it asked for.
    Confirm(Confirm, Result<(), Box<LockError>>),
    /// This hold was lost: wake those who wait for the loss, and notify subscribers.
    Lost(Arc<Hold>),
    /// A newer call has come, so this hold is asked to leave: wake those who wait for that.
    Superseded(Arc<Hold>),
    /// For subscribers and recorders.
    Observe(Box<Observation>),
    /// A bug has broken this machine. It has wakers, so it is dropped when no lock of the engine is held.
    Broken(Box<Machine<W>>),
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self {
            out: Vec::new(),
            later: Vec::new(),
            listening: false,
            ends_older: false,
            asked_away: None,
            moved: Vec::new(),
        }
    }
}

impl<W> Env<'_, W> {
    pub(super) fn fail(&mut self, waiter: W, error: LockError) {
        self.effects.later.push(Later::Fail(waiter, Box::new(error)));
    }

    /// Tells a waiter that has left why, with the key that it asked for.
    pub(super) fn refuse(&mut self, waiter: WaitingCall<W>, why: impl FnOnce(String) -> LockError) {
        let key = waiter.demand.key().to_owned();
        self.fail(waiter.handle, why(key));
    }

    pub(super) fn confirm(&mut self, confirm: Confirm, outcome: Result<(), LockError>) {
        self.effects.later.push(Later::Confirm(confirm, outcome.map_err(Box::new)));
    }

    /// A try to renew the lease failed. A renewal that is due is missed once, however often it is tried.
    pub(super) fn doubt(&mut self, hold: &Hold, fault: Fault) {
        let demand = Arc::clone(&hold.demand);
        match hold.doubted(self.now) {
            true => self.observe(Observation::Missed { demand, fault, is_first: true }),
            false => self.failed(&demand, fault),
        }
    }

    /// A question about a lock failed.
    pub(super) fn failed(&mut self, demand: &Demand, fault: Fault) {
        self.observe(Observation::Failed(demand.key().into(), demand.sort(), fault));
    }

    pub(super) fn observe(&mut self, observation: Observation) {
        self.effects.later.push(Later::Observe(Box::new(observation)));
    }

    /// Reports what happened to a lease that lingers, if there is a subscriber.
    pub(super) fn idle(&mut self, sort: LockSort, event: IdleEvent) {
        if self.effects.listening {
            self.observe(Observation::Idle(sort, event));
        }
    }

    pub(super) fn part(&mut self, reap: Option<Box<Reap>>) {
        self.effects.out.extend(reap.map(Outgoing::Part));
    }

    /// Releases the token of a stage, unless that is on its way.
    pub(super) fn salvage(&mut self, moved: Moved, reason: &LossReason) {
        let (token, demand) = match moved {
            Moved::Token(_, demand) if demand.adopts.is_some() => return,
            Moved::Token(token, demand) => (token, demand),
            Moved::Hold(hold) => {
                hold.lose(self.now, reason.clone());
                let (token, demand) = (hold.token.whole(), Arc::clone(&hold.demand));
                self.effects.later.push(Later::Lost(hold));
                // The process that gave it away may rely on its lease, which ends by itself.
                if demand.adopts.is_some() && demand.terms.ttl.is_some() {
                    return;
                }
                (token, demand)
            }
        };
        let is_it = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Part(reap) if reap.attempt().token() == &token);
        if !self.effects.out.iter().any(is_it) {
            let mut attempt = Attempt::of(token, &demand, self.now);
            attempt.asked(demand.terms.ttl);
            self.part(Reap::of(attempt, None, &demand));
        }
    }
}

impl<W> Machine<W> {
    /// Ends everything: waiters are refused, and the present hold is lost.
    pub(crate) fn close(&mut self, error: &LockError, reason: &LossReason, env: &mut Env<'_, W>) {
        self.refuse_all(error, env);
        self.revoke(reason, env);
        self.part_with_lapsed(|_| true, env);
    }

    /// Refuses all waiters, and gives an idle lease back. The present hold continues.
    pub(crate) fn refuse_all(&mut self, error: &LockError, env: &mut Env<'_, W>) {
        for waiter in self.waiters.drain() {
            env.fail(waiter.handle, error.clone());
        }
        self.give_up_kept(IdleEnd::Shutdown, env);
        self.abandon_if_unwanted(env);
    }

    /// A bug has made a step panic. What the machine knows may be wrong, so its hold ends as lost, those who
    /// wait are refused, and every token that the step had in hand is released.
    pub(crate) fn fail(&mut self, fault: &Fault, env: &mut Env<'_, W>) {
        let error = LockError::backend(None, fault);
        let reason = LossReason::Removed { because: Some(fault.what.clone()) };
        if contained(|| self.close(&error, &reason, env)).is_err() {
            let mut broken = std::mem::replace(self, Self::new());
            for waiter in broken.waiters.drain() {
                env.fail(waiter.handle, error.clone());
            }
            env.effects.moved.extend(Moved::of(&broken.stage));
            env.effects.later.push(Later::Broken(Box::new(broken)));
        }
        for moved in std::mem::take(&mut env.effects.moved) {
            env.salvage(moved, &reason);
        }
        for outgoing in &mut env.effects.out {
            if let Outgoing::Part(reap) = outgoing {
                // The step may have panicked over a question without an answer.
                reap.doubt_all(env.now);
            }
        }
    }
}

impl Moved {
    pub(super) fn of(stage: &Stage) -> Option<Self> {
        match stage {
            Stage::Idle | Stage::Sharing(_) => None,
            Stage::Contending(contending) => {
                let token = contending.attempt.token().clone();
                Some(Self::Token(token, Arc::clone(&contending.demand)))
            }
            Stage::Held(held) => Some(Self::Hold(Arc::clone(&held.hold))),
            Stage::Kept(kept) => Some(Self::Token(kept.token().clone(), Arc::clone(&kept.demand))),
        }
    }
}
