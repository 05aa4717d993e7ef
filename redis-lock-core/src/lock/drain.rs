//! How many callers a machine has, and what a drain and a shutdown do to them.

use super::question::{About, Open};
use super::{Effects, Env, Machine, Stage};
use crate::domain::idle_event::IdleEnd;
use crate::{LockError, LossReason};

impl<W> Machine<W> {
    /// How many calls wait in these machines of one key. One whose first question is open may get the lock at
    /// once, so it does not count, unless this process has the lock.
    pub(crate) fn waiting<'a>(machines: impl Iterator<Item = &'a Self>) -> usize
    where
        W: 'a,
    {
        let (mut waiting, mut asking, mut is_held) = (0_usize, 0, false);
        for machine in machines {
            waiting += machine.waiters.waiting();
            match &machine.stage {
                Stage::Held(_) => is_held = true,
                Stage::Contending(contending) if contending.is_first() => asking += 1,
                _ => {}
            }
        }
        if is_held { waiting } else { waiting.saturating_sub(asking) }
    }

    /// How many calls wait in these machines of one key that the server has refused the lock before.
    pub(crate) fn refused_before<'a>(machines: impl Iterator<Item = &'a Self>) -> usize
    where
        W: 'a,
    {
        let has_answer = |machine: &&Self| matches!(&machine.stage, Stage::Contending(contending) if !contending.is_first());
        machines.filter(has_answer).map(|machine| machine.waiters.waiting()).sum()
    }

    /// Whether its call wants no long queue, and has asked for the first time.
    pub(crate) fn may_be_crowded(&self) -> bool {
        let limit = self.waiters.first().and_then(|first| first.demand.terms.max_waiters);
        matches!(&self.stage, Stage::Contending(contending) if contending.is_first())
            && limit.is_some()
    }

    /// The lock is busy. Refuses a call that asked for the first time when so many wait already.
    pub(super) fn refuse_crowd(&mut self, open: &Open, env: &Env<'_>, out: &mut Effects<W>) {
        if open.about == About::Take || !self.may_be_crowded() {
            return;
        }
        let Some(first) = self.waiters.first() else { return };
        let most = first.demand.terms.max_waiters.unwrap_or(usize::MAX);
        if env.waiting >= most && first.can_wait() {
            let (key, waiting) = (first.demand.key().to_owned(), env.waiting);
            if let Some(waiter) = self.waiters.pop() {
                out.fail(waiter.handle, LockError::Crowded { key, waiting });
            }
        }
    }

    /// Whether callers that came before, or a holder of this process, have to be waited for.
    pub(crate) fn is_behind(&self, id: u64) -> bool {
        let has_holder = matches!(self.stage, Stage::Held(_));
        has_holder || self.waiters.first().is_some_and(|first| first.id != id)
    }

    /// Ends everything: waiters are refused, and the present hold is lost.
    pub(crate) fn close(
        &mut self,
        error: &LockError,
        reason: &LossReason,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) {
        self.refuse_all(error, env, out);
        self.revoke(reason, env, out);
        self.part_with_lapsed(|_| true, out);
    }

    /// Refuses all waiters, and gives an idle lease back. The present hold goes on.
    pub(crate) fn refuse_all(&mut self, error: &LockError, env: &Env<'_>, out: &mut Effects<W>) {
        for waiter in self.waiters.drain() {
            out.fail(waiter.handle, error.clone());
        }
        self.give_up_kept(IdleEnd::Shutdown, env, out);
        self.abandon_if_unwanted(env, out);
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held(_))
    }
}
