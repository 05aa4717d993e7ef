//! An idle lease that is kept for a while, so that the next call needs no command.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Lease;
use super::held::Held;
use super::question::{About, Open};
use super::timing::Turn;
use super::{Attempt, Effects, Env, Machine, Outcome, Outgoing, Reap, Stage};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::status::{IdleEnd, IdleEvent};
use crate::lock::hold::Hold;
use crate::store::{Answer, Verb};

/// The stage in which no guard of this process has the lock, but its lease is kept.
#[derive(Debug)]
pub(super) struct KeptLease {
    attempt: Attempt,
    lease: Lease,
    fences: Range<u64>,
    /// The demand of the last hold.
    demand: Arc<Demand>,
    since: Moment,
    until: Moment,
    was_free: bool,
    /// Whether it was taken again without a command.
    was_taken_again: bool,
    turns: Token,
}

impl KeptLease {
    pub(super) fn token(&self) -> &Token {
        self.attempt.token()
    }

    pub(super) fn demand(&self) -> &Arc<Demand> {
        &self.demand
    }

    pub(super) fn since(&self) -> Moment {
        self.since
    }

    pub(super) fn due(&self, is_open: bool) -> Moment {
        let renewal = if is_open { Moment::NEVER } else { self.lease.renew_at };
        renewal.min(self.until).min(self.lease.end)
    }

    /// Whether the lease is the one that a demand would ask for.
    fn suits(&self, demand: &Demand, now: Moment) -> bool {
        demand.terms.ttl.is_some()
            && demand.terms.ttl == self.lease.ttl
            && demand.terms.renew
            && demand.terms.margin == self.demand.terms.margin
            && demand.adopts.is_none()
            && demand.terms.max_hold >= self.demand.terms.max_hold
            && self.lease.is_fresh(now)
            && (!demand.terms.fenced || !self.fences.is_empty())
    }
}

impl<W> Machine<W> {
    /// Whether the lease of a hold that has ended may linger.
    pub(super) fn may_linger(&self, env: &Env<'_>) -> bool {
        let Stage::Held(held) = &self.stage else { return false };
        let demand = &held.hold.demand;
        demand.terms.linger.is_some_and(|linger| !linger.is_zero())
            && demand.kind.is_pooled()
            && demand.terms.ttl.is_some()
            && demand.terms.ttl == held.lease.ttl
            && demand.terms.renew
            && env.hints
            && env.lingers
            && held.attempt.may_be_idle()
            && held.was_free
            && !self.waited_for
            && self.waiters.is_empty()
            && !held.attempt.is_in_doubt()
            && !held.attempt.is_adopted()
            && held.lease.is_fresh(env.now)
    }

    /// Keeps the lease of a hold that has ended.
    pub(super) fn keep(&mut self, env: &Env<'_>, out: &mut Effects<W>) {
        let Some(held) = self.take_held(env, out) else { return };
        let Held { attempt, hold, lease, fences, was_free, was_taken_again, .. } = held;
        let linger = hold.demand.terms.linger.unwrap_or(Duration::ZERO);
        let mut kept = KeptLease {
            attempt,
            lease,
            fences,
            demand: Arc::clone(&hold.demand),
            since: env.now,
            until: env.now.after(linger),
            was_free,
            was_taken_again,
            turns: hold.token.clone(),
        };
        // An idle lease is renewed only as long as it lingers.
        kept.lease.schedule(true, kept.until, env);
        self.stage = Stage::Kept(kept);
        out.idle(hold.demand.sort(), IdleEvent::Began, env);
    }

    /// Whether a lease is kept that is the one a demand would ask for.
    pub(super) fn keeps_for(&self, demand: &Demand, now: Moment) -> bool {
        matches!(&self.stage, Stage::Kept(kept) if kept.suits(demand, now))
    }

    /// Takes the lease that is kept, without any command.
    pub(super) fn take_kept(
        &mut self,
        demand: Arc<Demand>,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) -> Option<Arc<Hold>> {
        let Stage::Kept(kept) = self.take_stage(out) else { return None };
        let sort = kept.demand.sort();
        let KeptLease { attempt, lease, mut fences, was_free, turns, .. } = kept;
        let fence = if demand.terms.fenced { fences.next() } else { None };
        let token = turns.next_turn();
        let hold = Arc::new(Hold::new(demand, token, fence, env.now, lease.end, env.process));
        let mut held = Held::new(attempt, Arc::clone(&hold), lease, Turn::begin(env.now, false));
        (held.fences, held.was_free) = (fences, was_free);
        held.was_taken_again = true;
        held.schedule(env);
        self.stage = Stage::Held(held);
        out.idle(sort, IdleEvent::TakenAgain, env);
        self.maintain_hold(env, out);
        Some(hold)
    }

    /// Does what is due while a lease is kept.
    pub(super) fn maintain_kept(&mut self, env: &Env<'_>, out: &mut Effects<W>) {
        let Stage::Kept(kept) = &mut self.stage else { return };
        if env.now >= kept.until || env.now >= kept.lease.end {
            let is_over = env.now >= kept.until;
            let why = if is_over { IdleEnd::Over } else { IdleEnd::Trouble };
            return self.give_up_kept(why, env, out);
        }
        if self.open.is_none() && kept.lease.renew_at <= env.now {
            let token = Arc::clone(kept.attempt.wire());
            let verb = Verb::Renew { token, ttl: kept.lease.ttl };
            let demand = Arc::clone(&kept.demand);
            self.send(&demand, About::Renew, verb, env, out);
        }
    }

    /// Handles the outcome of the renewal of a kept lease.
    pub(super) fn kept(
        &mut self,
        open: Open,
        outcome: Outcome,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) {
        let Stage::Kept(kept) = &mut self.stage else { return };
        match outcome {
            Outcome::Answered(Answer::Done | Answer::Renewed { waited_for: false, .. }) => {
                // A check says nothing of how long the lease is.
                if let About::Renew | About::Cut = open.about {
                    kept.lease.extend(&open);
                    let until = kept.until;
                    kept.lease.schedule(true, until, env);
                }
            }
            Outcome::Answered(Answer::Renewed { waited_for: true, .. }) => {
                self.somebody_waits(env, out);
            }
            // No caller held it, so nobody has lost anything.
            Outcome::Answered(Answer::Gone { .. }) => {
                if let Stage::Kept(kept) = self.take_stage(out) {
                    kept.attempt.ends();
                    out.idle(kept.demand.sort(), IdleEvent::Ended(IdleEnd::Trouble), env);
                }
            }
            _ => self.give_up_kept(IdleEnd::Trouble, env, out),
        }
    }

    /// A caller in another process, which does not wait, asks for the lock in case it is idle.
    /// `may_answer` limits how often this process says that a body runs.
    pub(crate) fn asked_for(
        &mut self,
        asker: &Token,
        may_answer: impl FnOnce() -> bool,
        env: &Env<'_>,
        out: &mut Effects<W>,
    ) {
        if let Stage::Kept(_) = self.stage {
            // It is in the queue, so the release grants it the lock.
            self.waited_for = true;
            return self.give_up_kept(IdleEnd::Asked, env, out);
        }
        if asker.has_channel()
            && self.answers_in_use(env.now, may_answer)
            && let Stage::Held(held) = &self.stage
        {
            let asker = Arc::clone(asker.wire());
            let in_use = super::command(&held.hold.demand, Verb::InUse { asker });
            out.out.push(Outgoing::Message(in_use));
        }
    }

    /// Gives back the lease that has been idle since `since`, because too many linger.
    pub(crate) fn make_room(&mut self, since: Moment, env: &Env<'_>, out: &mut Effects<W>) {
        if self.idle_since() == Some(since) {
            self.give_up_kept(IdleEnd::Limit, env, out);
        }
    }

    /// Since when the lease has been idle.
    pub(crate) fn idle_since(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Kept(kept) => Some(kept.since),
            _ => None,
        }
    }

    /// Whether the idle lease is that of a token.
    pub(crate) fn keeps(&self, token: &Token) -> bool {
        matches!(&self.stage, Stage::Kept(kept) if kept.token().wire() == token.wire())
    }

    /// Gives back an idle lease.
    pub(crate) fn give_up_kept(&mut self, why: IdleEnd, env: &Env<'_>, out: &mut Effects<W>) {
        if !matches!(self.stage, Stage::Kept(_)) {
            return;
        }
        let Stage::Kept(kept) = self.take_stage(out) else { return };
        out.idle(kept.demand.sort(), IdleEvent::Ended(why), env);
        if why == IdleEnd::Asked {
            out.asked_away = Some(kept.was_taken_again);
        }
        let reap = Reap::of(kept.attempt, self.open.take(), &kept.demand);
        out.part(reap.map(|reap| reap.waited_for(self.waited_for)));
    }
}
