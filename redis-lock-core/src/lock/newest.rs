//! Calls that end older ones: which may still end others, and when a waiting one ends.

use super::contend::Contending;
use super::{Attempt, Env, Machine, Stage};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::store::Newest;
use crate::{LockError, Token};

impl Contending {
    /// Which of its questions comes next, if its token may end older calls.
    pub(super) fn newest(&self) -> Option<Newest> {
        let next = if self.was_refused() { Newest::Later } else { Newest::First };
        (self.demand.terms.newest && self.attempt.token().is_newest()).then_some(next)
    }

    /// Whether the next question could end newer calls. The server may have executed an earlier one, and forgets it
    /// when the lease or the place ends.
    pub(super) fn may_end_newer(&self, now: Moment) -> bool {
        let arrives_by = now.after(self.demand.terms.timeout);
        self.newest() == Some(Newest::First) && self.attempt.may_be_forgotten(arrives_by)
    }

    /// Whether a later call of this `Locks` has come, and the server has not answered this one. Its next question
    /// could end the later call, or run after it.
    pub(super) fn is_outdone(&self) -> bool {
        self.followed.is_some() && self.newest() != Some(Newest::Later)
    }
}

impl<W> Env<'_, W> {
    /// The attempt of a call that has asked with another token. Newer calls may have come since; without the flag it
    /// neither ends them nor is ended by them.
    pub(super) fn attempt_again(&self, demand: &Demand) -> Attempt {
        match demand.terms.newest {
            true => Attempt::of(Token::fresh(self.manager, &demand.terms.label), demand, self.now),
            false => self.attempt(demand),
        }
    }
}

impl<W> Machine<W> {
    /// A later call of this `Locks` has come that ends older ones. This one ends, unless the server has answered it
    /// or still may.
    pub(crate) fn on_later_call(&mut self, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.followed = Some(env.now);
        let is_plain = !contending.attempt.token().is_newest();
        if (is_plain || contending.heard.failures > 0) && contending.is_outdone() {
            self.on_superseded(true, env);
        }
    }

    /// A newer call has come, so this call, which has a separate machine, ends.
    pub(super) fn on_superseded(&mut self, held: bool, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        if !held {
            contending.attempt.left_nothing();
        }
        for waiter in self.waiters.drain() {
            env.refuse(waiter, |key| LockError::Superseded { key });
        }
        self.abandon_if_unwanted(env);
    }
}
