//! Releasing the lock, or passing it on within this process.

use std::sync::Arc;

use super::held::Held;
use super::question::About;
use super::{Confirm, Effects, Env, Later, Machine, Reap, Stage};
use crate::domain::clock::Moment;
use crate::domain::token::MarkKind;
use crate::lock::hold::Hold;
use crate::{LockError, LockState, Token};

impl<W> Machine<W> {
    /// The guard of `hold` was dropped, or what the lock was held for was done. Returns the outcome where it is known at once; else it is
    /// reported to what `confirm` makes.
    pub(crate) fn release(
        &mut self,
        hold: &Arc<Hold>,
        completes: bool,
        confirm: impl FnOnce() -> Option<Confirm>,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) -> Option<Result<(), LockError>> {
        let is_it = self.guard_ends(hold, env, out);
        let is_certain = hold.last_state() == LockState::Held;
        if !is_it || !hold.release(env.now) {
            return Some(ended(hold, env.now));
        }
        self.refuse_overdue(env, out);
        let terms = &hold.demand.terms;
        let (time, mark) = match terms.once.filter(|_| completes) {
            Some(period) => (Some(period), MarkKind::Done),
            None => (terms.min_hold, MarkKind::Kept),
        };
        if let Some(end) = time.map(|time| hold.since.after(time)).filter(|end| *end > env.now) {
            self.contended = true;
            self.part_with_hold(Some((end, mark)), confirm(), env, out);
            return None;
        }
        if self.may_pass_on(env.now) {
            self.pass_on(env, out);
        } else if is_certain && self.may_linger(env) {
            self.keep(env, out);
        } else {
            self.part_with_hold(None, confirm(), env, out);
            return None;
        }
        Some(Ok(()))
    }

    /// Releases the token, and contends with a fresh one if there are waiters. The two commands
    /// keep their order, so waiters of other processes come first.
    fn part_with_hold(
        &mut self,
        keep_until: Option<(Moment, MarkKind)>,
        confirm: Option<Confirm>,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) {
        let Some(held) = self.take_held(env, out) else { return };
        // The caller has another reference to the hold, so its span does not end under the lock here.
        let Held { attempt, hold, lease, was_taken_again, .. } = held;
        if self.waited_for && was_taken_again {
            out.asked_away = Some(true);
        }
        let reap = Reap::of(attempt, self.open.take(), &hold.demand).map(|reap| {
            let reap =
                reap.waited_for(self.waited_for).of_hold(lease.end).confirm(confirm, env.now);
            match keep_until {
                Some((end, mark)) => reap.keep_until(end, mark),
                None => reap,
            }
        });
        out.part(reap);
        // Our own next token queues behind waiters of other processes, so `SET NX` would fail.
        let waited_for = self.waited_for;
        if !self.waiters.is_empty() {
            self.contended |= waited_for;
        }
        self.start(env, out);
    }

    /// Whether the lease can go to the next waiter without asking the server.
    fn may_pass_on(&self, now: Moment) -> bool {
        let (Stage::Held(held), Some(next)) = (&self.stage, self.waiters.first()) else {
            return false;
        };
        held.hold.demand.kind.is_pooled()
            && (Self::same_terms(held, &next.demand) || planted!(AnyTerms))
            && held.turn.runs(now)
            && (held.lease.is_fresh(now) || planted!(StaleHandedOn))
            && (!next.demand.terms.fenced || !held.fences.is_empty())
    }

    fn pass_on(&mut self, env: &Env<'_>, out: &mut Effects<W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        let Some(waiter) = self.waiters.pop() else { return };
        held.turn.pass();
        let token = held.hold.token.next_turn();
        let fence = if waiter.demand.terms.fenced { held.fences.next() } else { None };
        let (since, end) = (env.now, held.lease.end);
        let next = Arc::new(Hold::new(waiter.demand, token, fence, since, end, env.process));
        // The caller has another reference to the hold before, so its span does not end here.
        held.hold = Arc::clone(&next);
        // A renewal that is due stays: whoever is next may hold the lock at least as long.
        if held.lease.renew_at == Moment::NEVER {
            held.schedule(env);
        }
        out.later.push(Later::Grant(waiter.handle, next));
    }

    /// Gives up the hold without releasing it. Its token is for the adopter, and says what of its
    /// commands may still be executed.
    pub(crate) fn detach(
        &mut self,
        hold: &Arc<Hold>,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) -> Option<Token> {
        if !self.guard_ends(hold, env, out) || !hold.release(env.now) {
            return None;
        }
        let held = self.take_held(env, out)?;
        let Held { attempt, mut lease, .. } = held;
        // A renewal that is on its way can only lengthen the lease, which does no harm. A cut may be
        // executed behind the adopter's renewals.
        if let Some(cut) = self.open.take().filter(|open| open.about == About::Cut) {
            lease.may_be_cut(cut.ttl);
        }
        let at_most = if planted!(CutNotPassedOn) { None } else { lease.at_most };
        let token = attempt.into_token(at_most, env.now);
        self.contended = true;
        self.start(env, out);
        Some(token)
    }
}

/// The outcome of a release after its hold has ended.
pub(crate) fn ended(hold: &Hold, now: Moment) -> Result<(), LockError> {
    hold.quiet_loss(now).map_or(Ok(()), |reason| Err(hold.lost_error(reason)))
}
