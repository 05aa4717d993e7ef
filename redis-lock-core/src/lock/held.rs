//! Holding the lock: renewals, callers' questions, and loss.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Lease;
use super::question::{About, HoldRequest, Open, Wanted, Wants, deadline};
use super::timing::{HintThrottle, Turn};
use super::{Attempt, Confirm, Env, Later, Machine, Outcome, Reap, Stage, lost_to};
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::lease;
use crate::domain::status::IdleEnd;
use crate::lock::hold::Hold;
use crate::observe::Observation;
use crate::store::{Answer, Blocker, Verb};
use crate::{LockError, LockState, LossReason};

/// A server's lease that is longer than what we asked for by more than this is cut. A smaller
/// surplus may be the difference between two clocks.
const SURPLUS: Duration = Duration::from_secs(1);

/// The last of the fencing numbers that an answer brought, and the slot.
pub(super) type Numbers = (Option<u64>, Option<u32>);

/// The stage in which a caller of this process holds the lock.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) attempt: Attempt,
    pub(super) hold: Arc<Hold>,
    pub(super) lease: Lease,
    pub(super) turn: Turn,
    /// Fencing numbers that are reserved and not used yet.
    pub(super) fences: Range<u64>,
    /// Whether the lock was free when it was acquired, so that its lease may linger.
    pub(super) was_free: bool,
    /// How often the lease was taken again, while it was idle, since the server granted it.
    pub(super) was_taken_again: bool,
    wanted: Wanted,
    throttle: HintThrottle,
    /// Limits how often requests for an idle lease are answered.
    answers: HintThrottle,
    /// When to check a message about a forced release, and one about a newer call, if no question is open then.
    check_at: Moment,
    newer_at: Moment,
}

/// What becomes of the token of a hold that was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Released,
    /// It stays on the server until the guard is gone.
    Stays,
    /// There is nothing to release, or it is not ours alone.
    Ends,
}

impl Held {
    pub(super) fn new(attempt: Attempt, hold: Arc<Hold>, lease: Lease, turn: Turn) -> Self {
        Self {
            attempt,
            hold,
            lease,
            turn,
            fences: 0..0,
            was_free: false,
            was_taken_again: false,
            wanted: Wanted::default(),
            throttle: HintThrottle::default(),
            answers: HintThrottle::default(),
            check_at: Moment::NEVER,
            newer_at: Moment::NEVER,
        }
    }

    pub(super) fn due(&self, open: Option<&Open>) -> Moment {
        let question = self.lease.renew_at.min(self.check_at).min(self.newer_at);
        let question = if open.is_some() { Moment::NEVER } else { question };
        let wanted = deadline(&self.wanted.askers);
        let answer =
            open.map_or(wanted, |open| wanted.min(deadline(&open.askers)).min(open.late_at));
        question.min(answer).min(self.hold.deadline())
    }

    pub(super) fn as_blocker(&self, now: Moment) -> Blocker {
        let margin = self.hold.demand.terms.margin;
        Blocker {
            value: Some(self.hold.token.wire().to_string()),
            ttl: self.lease.ttl.map(|_| self.lease.end.since(now).saturating_add(margin)),
            queued: false,
            repaired: false,
            asked: false,
        }
    }

    /// A server is asked that may have lost its last writes.
    pub(super) fn renew_soon(&mut self, now: Moment) {
        let renews = self.hold.demand.terms.renew && self.lease.renew_at != Moment::NEVER;
        if renews {
            self.lease.renew_at = now;
        }
        self.downgrade_from(if renews { now } else { Moment::START });
    }

    /// Repeats a downgrade, if there was one, after a renewal that is sent then.
    fn downgrade_from(&mut self, time: Moment) {
        let is_reader = self.hold.kind() != self.hold.demand.kind;
        self.wanted.downgrade = is_reader.then_some(time);
    }

    pub(super) fn schedule<W>(&mut self, env: &Env<'_, W>) {
        let renews = self.hold.demand.terms.renew;
        self.lease.schedule(renews, self.hold.limit(), env);
    }

    /// The next question, if there is one.
    fn next_question(&self, now: Moment) -> Option<(About, Verb)> {
        let token = || Arc::clone(self.attempt.wire());
        let wanted = &self.wanted;
        if wanted.cut {
            let time = self.attempt.longest();
            Some((About::Cut, Verb::Keep { token: token(), time }))
        } else if self.lease.renew_at <= now || wanted.extension().is_some() {
            let rest = lease::covering(self.hold.limit().since(now));
            let ttl = self.lease.ttl.map(|ttl| ttl.min(rest));
            Some((About::Renew, Verb::Renew { token: token(), ttl }))
        } else if wanted.downgrade.is_some_and(|from| from <= self.lease.sent)
            || wanted.wants(Wants::Downgrade)
        {
            Some((About::Downgrade, Verb::Downgrade { token: token() }))
        } else if self.newer_at <= now {
            Some((About::Newer, Verb::Newer { token: token() }))
        } else if self.check_at <= now || wanted.wants(Wants::Check) {
            Some((About::Check, Verb::Check { token: token() }))
        } else {
            None
        }
    }
}

impl<W> Machine<W> {
    /// Hands the lease that a question brought to the first waiter.
    pub(super) fn hand_out(
        &mut self,
        attempt: Attempt,
        open: &Open,
        (last_fence, slot): Numbers,
        was_free: bool,
        env: &mut Env<'_, W>,
    ) {
        let Some(waiter) = self.waiters.pop() else {
            // Unreachable: the caller has checked that there is a waiter.
            return;
        };
        let mut fences = last_fence.map_or(0..0, lease::reserved_fences);
        let mut lease = Lease::granted(open, &attempt);
        if planted!(WaitersTtl) {
            lease.ttl = super::asked_ttl(&waiter.demand);
            lease.end = lease::deadline(open.sent, lease.ttl);
        }
        let fence = match &waiter.demand.adopts {
            Some(adopted) => adopted.fence,
            None if waiter.demand.terms.fenced => fences.next(),
            None => None,
        };
        let token = attempt.token().clone();
        let mut hold = Hold::new(waiter.demand, token, fence, open.sent, lease.end, env.process);
        hold.slot = slot;
        let hold = Arc::new(hold);
        let turn = Turn::begin(env.now, self.waited_for);
        let mut held = Held::new(attempt, Arc::clone(&hold), lease, turn);
        (held.fences, held.was_free) = (fences, was_free);
        held.schedule(env);
        self.stage = Stage::Held(held);
        let same = hold.demand.terms.same;
        env.effects.later.push(Later::Grant(waiter.handle, hold));
        self.tell_mismatched(same, env);
        // The lock is in use now, which is the answer that the others were put off for.
        self.refuse_late(env.now, env);
        self.refuse_no_wait(env.now, env);
    }

    /// A caller wants something of its hold. Does nothing when the present hold is another one.
    pub(crate) fn want(
        &mut self,
        hold: &Arc<Hold>,
        wants: Wants,
        confirm: Confirm,
        env: &mut Env<'_, W>,
    ) {
        self.notice_loss(env);
        let Stage::Held(held) = &mut self.stage else { return };
        if !Arc::ptr_eq(&held.hold, hold) {
            return;
        }
        if let Wants::Extend(ttl) = wants {
            held.lease.ttl = held.lease.ttl.map(|old| old.max(ttl));
        }
        let deadline = env.now.after(hold.demand.terms.timeout);
        held.wanted.askers.push(HoldRequest { confirm, deadline, wants });
        self.ask_wanted(env);
    }

    /// A message says that the hold was ended by force. Only the server knows whether that is true.
    pub(crate) fn on_forced(&mut self, env: &mut Env<'_, W>) {
        match &mut self.stage {
            Stage::Held(held) => {
                held.check_at = held.check_at.min(held.throttle.follow_at(env.now));
                self.maintain_hold(env);
            }
            // The next call must not get this lease. If the message is forged, that costs only the
            // idle lease.
            Stage::Kept(_) => self.give_up_kept(IdleEnd::Trouble, env),
            Stage::Idle | Stage::Contending(_) | Stage::Sharing(_) => {}
        }
    }

    /// Another process asks for the lock without waiting, and it is in use here. Returns whether to
    /// answer.
    pub(super) fn answers_in_use(
        &mut self,
        now: Moment,
        may_answer: impl FnOnce() -> bool,
    ) -> bool {
        let Stage::Held(held) = &mut self.stage else { return false };
        let answers = held.answers.follow_at(now) <= now && may_answer();
        if answers {
            held.answers.followed(now);
        }
        answers
    }

    /// A message may say that a newer call has come, which only the server can confirm.
    pub(super) fn look_for_newer(&mut self, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        if held.hold.may_be_superseded() {
            held.newer_at = held.newer_at.min(held.throttle.follow_at(env.now));
            self.maintain_hold(env);
        }
    }

    /// A newer call has come: the body is to leave, and the lock is given back then.
    fn on_newer_call(&mut self, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        self.waited_for = true;
        if held.hold.supersede() {
            env.effects.later.push(Later::Superseded(Arc::clone(&held.hold)));
        }
    }

    /// Does what is due while holding.
    pub(super) fn maintain_hold(&mut self, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        let now = env.now;
        let asked = self.open.as_mut().map(|open| &mut open.askers);
        for askers in asked.into_iter().chain([&mut held.wanted.askers]) {
            for asker in askers.extract_if(.., |asker| asker.deadline <= now) {
                let key = Some(held.hold.demand.key());
                let error = LockError::backend(key, &Fault::no_answer());
                env.confirm(asker.confirm, Err(error));
            }
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.late_at <= env.now) {
            open.late_at = Moment::NEVER;
            env.doubt(&held.hold, Fault::no_answer());
        }
        self.ask_wanted(env);
    }

    /// Sends the next question, unless one is open.
    fn ask_wanted(&mut self, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        if self.open.is_some() {
            return;
        }
        let Some((about, verb)) = held.next_question(env.now) else { return };
        let askers = held.wanted.take(about);
        match about {
            About::Renew => held.attempt.asked(held.lease.ttl),
            About::Cut => held.wanted.cut = false,
            About::Downgrade => held.wanted.downgrade = None,
            _ => {}
        }
        let news = match about {
            About::Newer => Some(&mut held.newer_at),
            // A renewal checks the hold as well.
            About::Renew | About::Check => Some(&mut held.check_at),
            _ => None,
        };
        if let Some(at) = news.filter(|at| **at <= env.now) {
            *at = Moment::NEVER;
            held.throttle.followed(env.now);
        }
        let demand = Arc::clone(&held.hold.demand);
        self.send(&demand, about, verb, env);
        if let Some(open) = &mut self.open {
            open.askers = askers;
        }
    }

    /// Handles the outcome of a question about the hold.
    pub(super) fn on_outcome_held(&mut self, open: Open, outcome: Outcome, env: &mut Env<'_, W>) {
        match outcome {
            Outcome::Answered(Answer::Gone { by, because }) => {
                let reason = lost_to(by.as_deref(), because.as_deref());
                self.on_gone(open, reason, env);
            }
            Outcome::Answered(answer) => {
                if let Answer::Superseded { .. } = answer {
                    self.on_newer_call(env);
                }
                self.on_confirmed(open, &answer, env);
            }
            Outcome::Refused(fault) => self.on_missed(open, &fault, false, env),
            Outcome::Unknown(fault) => self.on_missed(open, &fault, true, env),
        }
    }

    fn on_confirmed(&mut self, mut open: Open, answer: &Answer, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        match open.about {
            About::Renew | About::Cut => {
                if env.effects.listening {
                    env.observe(Observation::Renewed(held.hold.demand.sort()));
                }
                if planted!(RenewedFromAnswer) {
                    open.sent = env.now;
                }
                let end = held.lease.extend(&open);
                let wanted_at = held.lease.renew_at;
                if held.hold.renewed(env.now, end) {
                    held.schedule(env);
                    if open.sent < wanted_at && wanted_at <= env.now {
                        // A server that came back since may not have heard of it.
                        held.renew_soon(env.now);
                    }
                }
            }
            About::Downgrade => held.hold.downgraded(),
            About::Check | About::Newer | About::Take | About::Acquire { .. } => {}
        }
        if let Answer::Renewed { longer, waited_for, .. } = answer {
            let most = held.attempt.longest().saturating_add(SURPLUS);
            let is_ours_alone = !held.attempt.is_adopted() && held.lease.ttl.is_some();
            // The server's clock was set back, so its lease would last that much longer than ours.
            held.wanted.cut = is_ours_alone && longer.is_some_and(|left| left > most);
            if *waited_for {
                self.on_waited_for(env);
                // The message that a newer call has come may be lost.
                self.look_for_newer(env);
            }
        }
        for asker in open.askers {
            env.confirm(asker.confirm, Ok(()));
        }
        self.notice_loss(env);
        self.ask_wanted(env);
    }

    /// A question about the hold has no answer. The known lease runs on.
    fn on_missed(&mut self, open: Open, fault: &Fault, is_unknown: bool, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        let demand = Arc::clone(&held.hold.demand);
        if is_unknown && open.about == About::Cut {
            held.lease.may_be_cut(open.ttl);
        }
        if let About::Renew | About::Cut = open.about {
            let was_certain = held.hold.last_state() == LockState::Held;
            if is_unknown {
                held.attempt.doubt_renewal(env.now, open.ttl);
            }
            if open.late_at != Moment::NEVER {
                env.doubt(&held.hold, fault.clone());
            }
            if held.lease.renew_at != Moment::NEVER {
                // A late renewal can do no harm, because the server only lengthens a lease that the
                // token still has. So a renewal with an unknown outcome is simply sent again, but not all
                // the time where each outcome comes at once.
                let ttl = held.lease.ttl.unwrap_or(super::timing::UNLEASED);
                held.lease.renew_at = match is_unknown {
                    true if was_certain => env.now,
                    true => lease::renewal_retry(open.sent, ttl).max(env.now),
                    false => lease::renewal_retry(env.now, ttl),
                };
            }
        } else {
            if open.about == About::Downgrade {
                held.downgrade_from(held.lease.renew_at);
            }
            env.failed(&demand, fault.clone());
        }
        for asker in open.askers {
            if is_unknown && asker.deadline > env.now {
                held.wanted.askers.push(asker);
            } else {
                let error = LockError::backend(Some(demand.key()), fault);
                env.confirm(asker.confirm, Err(error));
            }
        }
        self.notice_loss(env);
        self.ask_wanted(env);
    }

    /// The server says that the token does not have the lock.
    fn on_gone(&mut self, open: Open, reason: LossReason, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &mut self.stage else { return };
        held.hold.lose(env.now, reason);
        held.wanted.askers.extend(open.askers);
        self.on_lost(true, env);
    }

    /// Notices when the lease has ended, and turns to the next waiter.
    pub(super) fn notice_loss(&mut self, env: &mut Env<'_, W>) {
        if let Stage::Held(held) = &self.stage
            && held.hold.quiet_loss(env.now).is_some()
        {
            self.on_lost(false, env);
        }
    }

    /// The hold was lost. `is_gone` means that the server itself has reported that the token is
    /// gone.
    fn on_lost(&mut self, is_gone: bool, env: &mut Env<'_, W>) {
        let Some(held) = self.take_held(env) else { return };
        // The process that gave an adopted token away may still rely on it: a lease that ran out
        // here may run on there, and it ends by itself. Where the server has nothing of it, nobody
        // has it.
        let is_shared = held.attempt.is_adopted() && held.lease.ttl.is_some() && !is_gone;
        // Of several keys, some may still be ours. And the server may have executed a renewal whose
        // answer was lost.
        let is_whole = !matches!(held.hold.demand.kind, Kind::All { .. });
        let has_nothing = is_gone && is_whole && !held.attempt.is_in_doubt();
        let releases = !is_shared && !has_nothing && !planted!(LapsedNotReleased);
        // What the server says to be gone needs no margin.
        let has_margin = !held.hold.demand.terms.margin.is_zero();
        let stays = has_margin && !(is_gone && is_whole);
        let fate = match releases {
            false => Fate::Ends,
            true if stays && !planted!(LapsedWithMargin) => Fate::Stays,
            true => Fate::Released,
        };
        self.part_with_lost(held, fate, env);
        self.start(env);
    }

    /// Takes out the hold, which has ended. The callers that still want something of it hear that when no
    /// lock of the engine is held: to drop what they wait for would wake them here.
    pub(super) fn take_held(&mut self, env: &mut Env<'_, W>) -> Option<Held> {
        let Stage::Held(mut held) = self.take_stage(env) else { return None };
        let asked = self.open.as_mut().map(|open| &mut open.askers);
        for askers in asked.into_iter().chain([&mut held.wanted.askers]) {
            for asker in std::mem::take(askers) {
                let reason = held.hold.quiet_end(env.now).unwrap_or(LossReason::Expired);
                env.confirm(asker.confirm, Err(held.hold.lost_error(reason)));
            }
        }
        Some(held)
    }

    fn part_with_lost(&mut self, held: Held, fate: Fate, env: &mut Env<'_, W>) {
        let Held { attempt, hold, .. } = held;
        let open = self.open.take();
        if fate == Fate::Ends {
            attempt.ends();
        } else if let Some(reap) = Reap::of(attempt, open, &hold.demand) {
            match fate {
                Fate::Stays => self.leave_lapsed(&hold, reap, env),
                _ => env.part(Some(reap.waited_for(self.waited_for))),
            }
        }
        env.effects.later.push(Later::Lost(hold));
    }

    /// Takes the lock from its guard, which then counts as lost.
    pub(super) fn revoke(&mut self, reason: &LossReason, env: &mut Env<'_, W>) {
        let Stage::Held(held) = &self.stage else { return };
        held.hold.lose(env.now, reason.clone());
        let Some(held) = self.take_held(env) else { return };
        self.part_with_lost(held, Fate::Released, env);
    }
}
