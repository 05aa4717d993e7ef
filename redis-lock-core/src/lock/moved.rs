//! A stage that a step has taken out of its machine, and what becomes of it when a bug makes the step
//! panic.

use std::sync::Arc;

use super::effects::Moved;
use super::{Attempt, Effects, Env, Later, Machine, Outgoing, Reap, Stage};
use crate::domain::error::Fault;
use crate::store::wire::contained;
use crate::{LockError, LossReason};

impl Moved {
    fn of(stage: &Stage) -> Option<Self> {
        match stage {
            Stage::Idle => None,
            Stage::Contending(contending) => {
                let token = contending.attempt.token().clone();
                Some(Self::Token(token, Arc::clone(contending.demand())))
            }
            Stage::Held(held) => Some(Self::Hold(Arc::clone(held.hold()))),
            Stage::Kept(kept) => Some(Self::Token(kept.token().clone(), Arc::clone(kept.demand()))),
        }
    }
}

impl<W> Machine<W> {
    /// Takes the stage out, which leaves the machine idle.
    pub(super) fn take_stage(&mut self, out: &mut Effects<W>) -> Stage {
        out.moved.extend(Moved::of(&self.stage));
        std::mem::replace(&mut self.stage, Stage::Idle)
    }

    /// A bug has made a step panic. What the machine knows may be wrong, so its hold ends as lost, those who
    /// wait are refused, and every token that the step had in hand is released.
    pub(crate) fn fail(&mut self, fault: &Fault, env: &Env<'_>, out: &mut Effects<W>) {
        let error = LockError::backend(None, fault);
        let reason = LossReason::Removed { because: Some(fault.what.clone()) };
        if contained(|| self.close(&error, &reason, env, out)).is_err() {
            let mut broken = std::mem::replace(self, Self::new());
            for waiter in broken.waiters.drain() {
                out.fail(waiter.handle, error.clone());
            }
            out.moved.extend(Moved::of(&broken.stage));
            out.later.push(Later::Broken(Box::new(broken)));
        }
        for moved in std::mem::take(&mut out.moved) {
            out.salvage(moved, &reason, env);
        }
        for outgoing in &mut out.out {
            if let Outgoing::Part(reap) = outgoing {
                // The step may have panicked over a question without an answer.
                reap.doubt_all(env.now);
            }
        }
    }
}

impl<W> Effects<W> {
    /// Releases the token of a stage, unless that is on its way.
    fn salvage(&mut self, moved: Moved, reason: &LossReason, env: &Env<'_>) {
        let (token, demand) = match moved {
            Moved::Token(_, demand) if demand.adopts.is_some() => return,
            Moved::Token(token, demand) => (token, demand),
            Moved::Hold(hold) => {
                hold.lose(env.now, reason.clone());
                let (token, demand) = (hold.token.whole(), Arc::clone(&hold.demand));
                self.later.push(Later::Lost(hold));
                // The process that gave it away may rely on its lease, which ends by itself.
                if demand.adopts.is_some() && demand.terms.ttl.is_some() {
                    return;
                }
                (token, demand)
            }
        };
        let is_it = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Part(reap) if reap.attempt().token() == &token);
        if !self.out.iter().any(is_it) {
            let ttl = demand.terms.ttl;
            let mut attempt = Attempt::new(token, ttl).with_margin(demand.terms.margin);
            attempt.asked(ttl);
            self.part(Reap::of(attempt, None, &demand));
        }
    }
}

#[cfg(test)]
impl<W> Machine<W> {
    /// Panics while the stage is out of the machine, as a bug may.
    pub(crate) fn break_while_moved(&mut self, out: &mut Effects<W>) {
        let _stage = self.take_stage(out);
        panic!("a planted bug");
    }
}
