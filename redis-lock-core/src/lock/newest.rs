//! Calls that end older ones: which may still end others, and when a waiting one ends.

use super::contend::Contending;
use super::{Env, Machine, Stage};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::store::{LEAST_SILENCE, Newest};

impl Contending {
    /// Which of its questions comes next, if its token may end older calls.
    pub(super) fn newest(&self) -> Option<Newest> {
        let next = if self.was_refused() { Newest::Later } else { Newest::First };
        (self.demand.terms.newest && self.attempt.token().is_newest()).then_some(next)
    }

    /// Whether the next question could end newer calls. The server may have executed an earlier question of this
    /// call. It forgets that when the lease or the place ends.
    pub(super) fn may_end_newer(&self, now: Moment) -> bool {
        // A question may have to wait for a connection first. Both have this long.
        let limit = self.demand.terms.timeout.max(LEAST_SILENCE);
        let arrives_by = now.after(limit).after(limit);
        self.newest() == Some(Newest::First) && self.attempt.may_be_forgotten(arrives_by)
    }

    /// Whether a later call of this `Locks` has come, and the server can't be relied on to end this one. Its next
    /// question could end the later call, or let this one run after it.
    pub(super) fn is_outdone(&self) -> bool {
        self.followed.is_some() && self.newest() != Some(Newest::Later)
    }
}

impl<W> Machine<W> {
    /// A later call of this `Locks` has come that ends older ones. From now on this call asks no question that could
    /// end the later call. Returns whether this call waits with `newest` and knew of no later call.
    pub(crate) fn note_later_call(&mut self, now: Moment) -> bool {
        match &mut self.stage {
            Stage::Contending(it) if it.demand.terms.newest => it.followed.replace(now).is_none(),
            _ => false,
        }
    }

    /// Whether its next question could end a later call of this `Locks`, or let this one run after it.
    pub(crate) fn is_outdone(&self) -> bool {
        matches!(&self.stage, Stage::Contending(contending) if contending.is_outdone())
    }

    /// What follows from [`note_later_call`](Self::note_later_call). The call ends now if the server can't be relied on to end it: its
    /// token has no flag, or all its questions have failed. If its first question is open, the next one is not asked.
    pub(crate) fn on_later_call(&mut self, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        let is_plain = !contending.attempt.token().is_newest();
        if (is_plain || contending.heard.failures > 0) && contending.is_outdone() {
            self.on_superseded(true, env);
        }
    }

    /// A newer call has come, so this call, which has a separate machine, ends. `held` is whether the server may have
    /// its token.
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
