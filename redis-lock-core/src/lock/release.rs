//! Releasing the lock, passing it on within this process, or keeping its lease for a while, so that the next
//! call needs no command; and tokens whose leases have lapsed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Lease;
use super::held::Held;
use super::question::{About, Open};
use super::timing::Turn;
use super::{Attempt, Confirm, Env, Later, Machine, Outcome, Outgoing, Reap, Stage};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::mark::MarkKind;
use crate::domain::status::{IdleEnd, IdleEvent};
use crate::domain::value::{Finish, StoredValue};
use crate::lock::hold::Hold;
use crate::store::{Answer, Verb};
use crate::{LockError, LockState, Token};

impl<W> Machine<W> {
    /// The guard of `hold` was dropped, or its work was completed. Returns the outcome if it is known at once.
    /// Otherwise the outcome is reported to what `confirm` makes.
    pub(crate) fn release(
        &mut self,
        hold: &Arc<Hold>,
        finish: &Finish,
        confirm: impl FnOnce() -> Option<Confirm>,
        env: &mut Env<'_, W>,
    ) -> Option<Result<(), LockError>> {
        let is_it = self.guard_ends(hold, env);
        let is_certain = hold.last_state() == LockState::Held;
        if !is_it || !hold.release(env.now) {
            return Some(ended(hold, env.now));
        }
        self.refuse_overdue(env);
        let terms = &hold.demand.terms;
        let (time, mark, value) = match (finish, terms.once) {
            (Finish::Complete(value), Some(period)) => {
                (Some(period), MarkKind::Done, value.as_ref())
            }
            _ => (terms.min_hold, MarkKind::Kept, None),
        };
        let end = time.map(|time| hold.since.after(time)).filter(|end| *end > env.now);
        let share = if let Finish::Share(value) = finish { Some(value) } else { None };
        if end.is_some() || share.is_some() {
            self.contended |= end.is_some();
            let keep_until = end.map(|end| (end, mark, value));
            self.part_with_hold(keep_until, share, confirm(), env);
            return None;
        }
        if self.may_pass_on(env.now) {
            self.pass_on(env);
        } else if is_certain && self.may_linger(env) {
            self.keep(env);
        } else {
            self.part_with_hold(None, None, confirm(), env);
            return None;
        }
        Some(Ok(()))
    }

    /// Releases the token, and contends with a fresh one if there are waiters. The two commands
    /// keep their order, so waiters of other processes come first.
    fn part_with_hold(
        &mut self,
        keep_until: Option<(Moment, MarkKind, Option<&StoredValue>)>,
        share: Option<&StoredValue>,
        confirm: Option<Confirm>,
        env: &mut Env<'_, W>,
    ) {
        let Some(held) = self.take_held(env) else { return };
        // The caller has another reference to the hold, so its span does not end under the lock here.
        let Held { attempt, hold, lease, was_taken_again, .. } = held;
        if self.waited_for && was_taken_again {
            env.effects.asked_away = Some(true);
        }
        // Where calls don't share a machine, another is likely to wait.
        let is_alone = hold.demand.terms.is_alone();
        let reap = Reap::of(attempt, self.open.take(), &hold.demand).map(|reap| {
            let reap = reap
                .waited_for(self.waited_for || is_alone)
                .of_hold(lease.end)
                .confirm(confirm, env.now)
                .share(share, hold.demand.terms.ttl);
            match keep_until {
                Some((end, mark, value)) => reap.keep_until(end, mark, value),
                None => reap,
            }
        });
        env.part(reap);
        // Our own next token queues behind waiters of other processes, so `SET NX` would fail.
        let waited_for = self.waited_for;
        if !self.waiters.is_empty() {
            self.contended |= waited_for;
        }
        match share {
            Some(value) => self.begin_sharing(&hold, value, env),
            None => self.start(env),
        }
    }

    /// Whether the lease can go to the next waiter without asking the server.
    fn may_pass_on(&self, now: Moment) -> bool {
        let (Stage::Held(held), Some(next)) = (&self.stage, self.waiters.first()) else {
            return false;
        };
        held.hold.demand.kind.is_pooled()
            && (held.lease.suits(&held.hold.demand, &next.demand) || planted!(AnyTerms))
            && held.turn.runs(now)
            && (held.lease.is_fresh(now) || planted!(StaleHandedOn))
            && (!next.demand.terms.fenced || !held.fences.is_empty())
    }

    fn pass_on(&mut self, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        let Some(waiter) = self.waiters.pop() else { return };
        held.turn.pass();
        let token = held.hold.token.next_turn();
        let fence = if waiter.demand.terms.fenced { held.fences.next() } else { None };
        let (since, end) = (env.now, held.lease.end);
        let next = Arc::new(Hold::new(waiter.demand, token, fence, since, end, env.process));
        // The caller has another reference to the hold before, so its span does not end here.
        held.hold = Arc::clone(&next);
        // A renewal that is due stays: the next guard may hold the lock at least as long.
        if held.lease.renew_at == Moment::NEVER {
            held.schedule(env);
        }
        env.effects.later.push(Later::Grant(waiter.handle, next));
    }

    /// Gives up the hold without releasing it. Its token is for the adopter, and says what of its
    /// commands may still be executed. `may_lag`: by a node of several that has not answered yet.
    pub(crate) fn detach(
        &mut self,
        hold: &Arc<Hold>,
        may_lag: bool,
        env: &mut Env<'_, W>,
    ) -> Option<Token> {
        if !self.guard_ends(hold, env) || !hold.release(env.now) {
            return None;
        }
        let held = self.take_held(env)?;
        let Held { mut attempt, mut lease, .. } = held;
        if may_lag {
            // Not for a whole lease: that long each adopter would repeat its release.
            attempt.doubt(env.now, Some(Duration::ZERO));
        }
        // A renewal that is on its way can only lengthen the lease, which does no harm. A cut may be
        // executed behind the adopter's renewals.
        if let Some(cut) = self.open.take().filter(|open| open.about == About::Cut) {
            lease.may_be_cut(cut.ttl);
        }
        let at_most = if planted!(CutNotPassedOn) { None } else { lease.at_most };
        let token = attempt.into_token(at_most, env.now);
        self.contended = true;
        self.start(env);
        Some(token)
    }
}

/// The outcome of a release after its hold has ended.
pub(crate) fn ended(hold: &Hold, now: Moment) -> Result<(), LockError> {
    hold.quiet_loss(now).map_or(Ok(()), |reason| Err(hold.lost_error(reason)))
}

/// A hold that has ended although its guard or its body may still live. A body that was stopped beyond its
/// lease may act before it finds that out, so nothing is released until the guard is dropped, or until
/// the server has forgotten the token.
#[derive(Debug)]
pub(super) struct LapsedHold {
    hold: Arc<Hold>,
    reap: Box<Reap>,
    until: Moment,
}

impl<W> Machine<W> {
    /// Leaves the token of a hold that has ended on the server.
    pub(super) fn leave_lapsed(&mut self, hold: &Arc<Hold>, reap: Box<Reap>, env: &Env<'_, W>) {
        let until = env.now.after(reap.attempt().longest());
        self.lapsed.push(LapsedHold { hold: Arc::clone(hold), reap, until });
    }

    /// The guard of a hold ends. No code relies on the lock from now on, so a lapsed lease is released.
    /// Returns whether it is the present hold.
    pub(super) fn guard_ends(&mut self, hold: &Arc<Hold>, env: &mut Env<'_, W>) -> bool {
        self.notice_loss(env);
        self.part_with_lapsed(|lapsed| Arc::ptr_eq(&lapsed.hold, hold), env);
        matches!(&self.stage, Stage::Held(held) if Arc::ptr_eq(&held.hold, hold))
    }

    /// The server has forgotten what a guard that is never dropped left there.
    pub(super) fn forget_lapsed(&mut self, env: &mut Env<'_, W>) {
        let now = env.now;
        self.part_with_lapsed(|lapsed| lapsed.until <= now, env);
    }

    pub(super) fn part_with_lapsed(
        &mut self,
        is_over: impl Fn(&LapsedHold) -> bool,
        env: &mut Env<'_, W>,
    ) {
        for lapsed in self.lapsed.extract_if(.., |lapsed| is_over(lapsed)) {
            // It goes before what the same step asks, which it would keep from the lock.
            let first = if planted!(LapsedBehind) { env.effects.out.len() } else { 0 };
            env.effects.out.insert(first, Outgoing::Part(lapsed.reap.waited_for(true)));
        }
    }

    /// Whether the guard of a hold that has ended may still live.
    pub(crate) fn has_lapsed(&self) -> bool {
        !self.lapsed.is_empty()
    }

    pub(super) fn lapsed_due(&self) -> Moment {
        self.lapsed.iter().map(|lapsed| lapsed.until).min().unwrap_or(Moment::NEVER)
    }

    /// The tokens of holds that have ended and are not released yet.
    #[cfg(test)]
    pub(crate) fn lapsed_tokens(&self) -> impl Iterator<Item = &Arc<str>> {
        self.lapsed.iter().map(|lapsed| lapsed.reap.attempt().wire())
    }
}

/// The stage in which no guard of this process has the lock, but its lease is kept.
#[derive(Debug)]
pub(super) struct KeptLease {
    attempt: Attempt,
    lease: Lease,
    fences: Range<u64>,
    /// The demand of the last hold.
    pub(super) demand: Arc<Demand>,
    pub(super) since: Moment,
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

    pub(super) fn due(&self, is_open: bool) -> Moment {
        let renewal = if is_open { Moment::NEVER } else { self.lease.renew_at };
        renewal.min(self.until).min(self.lease.end)
    }

    /// Whether a demand would ask for the same lease.
    fn suits(&self, demand: &Demand, now: Moment) -> bool {
        self.lease.suits(&self.demand, demand)
            && self.lease.is_fresh(now)
            && (!demand.terms.fenced || !self.fences.is_empty())
    }
}

impl<W> Machine<W> {
    /// Whether the lease of a hold that has ended may linger.
    pub(super) fn may_linger(&self, env: &Env<'_, W>) -> bool {
        let Stage::Held(held) = &self.stage else { return false };
        let demand = &held.hold.demand;
        demand.terms.linger.is_some_and(|linger| !linger.is_zero())
            && demand.kind.is_pooled()
            && held.lease.suits(demand, demand)
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
    pub(super) fn keep(&mut self, env: &mut Env<'_, W>) {
        let Some(held) = self.take_held(env) else { return };
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
        env.idle(hold.demand.sort(), IdleEvent::Began);
    }

    /// Takes the lease that is kept, without any command, if the demand would ask for the same.
    pub(crate) fn take_kept(
        &mut self,
        demand: &Arc<Demand>,
        env: &mut Env<'_, W>,
    ) -> Option<Arc<Hold>> {
        if !matches!(&self.stage, Stage::Kept(kept) if kept.suits(demand, env.now)) {
            return None;
        }
        let Stage::Kept(kept) = self.take_stage(env) else { return None };
        let sort = kept.demand.sort();
        let KeptLease { attempt, lease, mut fences, was_free, turns, .. } = kept;
        let fence = if demand.terms.fenced { fences.next() } else { None };
        let token = turns.next_turn();
        let (demand, since, end) = (Arc::clone(demand), env.now, lease.end);
        let hold = Arc::new(Hold::new(demand, token, fence, since, end, env.process));
        let mut held = Held::new(attempt, Arc::clone(&hold), lease, Turn::begin(env.now, false));
        (held.fences, held.was_free) = (fences, was_free);
        held.was_taken_again = true;
        held.schedule(env);
        self.stage = Stage::Held(held);
        env.idle(sort, IdleEvent::TakenAgain);
        self.maintain_hold(env);
        Some(hold)
    }

    /// Does what is due while a lease is kept.
    pub(super) fn maintain_kept(&mut self, env: &mut Env<'_, W>) {
        let Stage::Kept(kept) = &mut self.stage else { return };
        if env.now >= kept.until || env.now >= kept.lease.end {
            let is_over = env.now >= kept.until;
            let why = if is_over { IdleEnd::Over } else { IdleEnd::Trouble };
            return self.give_up_kept(why, env);
        }
        if self.open.is_none() && kept.lease.renew_at <= env.now {
            let token = Arc::clone(kept.attempt.wire());
            let verb = Verb::Renew { token, ttl: kept.lease.ttl };
            let demand = Arc::clone(&kept.demand);
            self.send(&demand, About::Renew, verb, env);
        }
    }

    /// Handles the outcome of the renewal of a kept lease.
    pub(super) fn on_outcome_kept(&mut self, open: Open, outcome: Outcome, env: &mut Env<'_, W>) {
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
                self.on_waited_for(env);
            }
            // No caller held it, so no caller has lost anything.
            Outcome::Answered(Answer::Gone { .. }) => {
                if let Stage::Kept(kept) = self.take_stage(env) {
                    kept.attempt.ends();
                    env.idle(kept.demand.sort(), IdleEvent::Ended(IdleEnd::Trouble));
                }
            }
            _ => self.give_up_kept(IdleEnd::Trouble, env),
        }
    }

    /// A caller in another process, which does not wait, asks for the lock in case it is idle.
    /// `may_answer` limits how often this process says that a body runs.
    pub(crate) fn on_asked_for(
        &mut self,
        asker: &Token,
        may_answer: impl FnOnce() -> bool,
        env: &mut Env<'_, W>,
    ) {
        if let Stage::Kept(_) = self.stage {
            // It is in the queue, so the release grants it the lock.
            self.waited_for = true;
            return self.give_up_kept(IdleEnd::Asked, env);
        }
        if asker.has_channel()
            && self.answers_in_use(env.now, may_answer)
            && let Stage::Held(held) = &self.stage
        {
            let asker = Arc::clone(asker.wire());
            let in_use = super::command(&held.hold.demand, Verb::InUse { asker });
            env.effects.out.push(Outgoing::Message(in_use));
        }
    }

    /// Gives back the lease that has been idle since `since`, because too many linger.
    pub(crate) fn make_room(&mut self, since: Moment, env: &mut Env<'_, W>) {
        if self.idle_since() == Some(since) {
            self.give_up_kept(IdleEnd::Limit, env);
        }
    }

    /// Since when the lease has been idle.
    pub(crate) fn idle_since(&self) -> Option<Moment> {
        let Stage::Kept(kept) = &self.stage else { return None };
        Some(kept.since)
    }

    /// Whether the idle lease is that of a token.
    pub(crate) fn keeps(&self, token: &Token) -> bool {
        matches!(&self.stage, Stage::Kept(kept) if kept.token().wire() == token.wire())
    }

    /// Gives back an idle lease.
    pub(crate) fn give_up_kept(&mut self, why: IdleEnd, env: &mut Env<'_, W>) {
        if !matches!(self.stage, Stage::Kept(_)) {
            return;
        }
        let Stage::Kept(kept) = self.take_stage(env) else { return };
        env.idle(kept.demand.sort(), IdleEvent::Ended(why));
        if why == IdleEnd::Asked {
            env.effects.asked_away = Some(kept.was_taken_again);
        }
        let reap = Reap::of(kept.attempt, self.open.take(), &kept.demand);
        env.part(reap.map(|reap| reap.waited_for(self.waited_for)));
    }
}
