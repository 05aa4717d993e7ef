//! The errors for callers that do not get the lock.

use std::time::Duration;

use super::contend::Contending;
use super::local_view::LastAnswer;
use super::question::{About, Open};
use super::timing::retry_at;
use super::waiters::{busy, unanswered};
use super::{Env, Heard, LineStanding, Machine, Stage, WaitingCall};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::mark::Mark;
use crate::domain::status::Done;
use crate::{LockError, Token};

/// How often the lock is asked for while an earlier release has no answer.
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

impl<W> Machine<W> {
    /// Refuses waiters whose time limit has passed.
    pub(super) fn refuse_overdue(&mut self, env: &mut Env<'_, W>) {
        while let Some(waiter) = self.waiters.overdue(env.now) {
            let (id, answer_by) = (waiter.id, waiter.answer_by());
            let known = match &self.stage {
                Stage::Contending(contending) => contending.is_answer_for(waiter),
                _ => true,
            };
            if !known && answer_by > env.now {
                // Whether the lock is busy or the server has failed is decided by the first answer
                // since the waiter arrived.
                self.waiters.put_off(id, answer_by);
                if self.open.is_none() {
                    self.ask_again(env);
                }
                continue;
            }
            if let Some(waiter) = self.waiters.leave(id) {
                self.refuse(waiter, env);
            }
        }
        if let Stage::Contending(contending) = &mut self.stage
            && contending.is_in_trouble(self.open.is_some())
        {
            if !matches!(contending.heard.last_answer, LastAnswer::Failed(_)) {
                // A server that answers other questions is slow, and this one has its turn.
                contending.heard.useful = contending.heard.useful.max(env.answered);
            }
            let ended = self.waiters.over_outage(contending.heard.useful, env.now);
            for waiter in ended {
                let error = self.outage(&waiter, env.now);
                env.fail(waiter.handle, error);
            }
        }
        self.abandon_if_unwanted(env);
    }

    /// Refuses waiters whose time limit has passed, unless they have not had any answer yet.
    pub(super) fn refuse_overdue_after_busy(&mut self, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &self.stage else { return };
        let answered_at = contending.heard.answered_at;
        while let Some(waiter) = self.waiters.overdue(env.now) {
            if answered_at < waiter.asked {
                // Other waiters may be overdue as well; the next tick refuses them.
                return;
            }
            let id = waiter.id;
            if let Some(waiter) = self.waiters.leave(id) {
                self.refuse(waiter, env);
            }
        }
        self.abandon_if_unwanted(env);
    }

    /// Refuses waiters whose time limit passed before any answer came, if they arrived before
    /// `sent`.
    pub(super) fn refuse_late(&mut self, sent: Moment, env: &mut Env<'_, W>) {
        for waiter in self.waiters.take_late(sent) {
            self.refuse(waiter, env);
        }
    }

    /// Refuses waiters that want a single attempt, if they arrived before `sent`.
    pub(super) fn refuse_no_wait(&mut self, sent: Moment, env: &mut Env<'_, W>) {
        while let Some(waiter) = self.waiters.pop_no_wait(sent) {
            self.refuse(waiter, env);
        }
    }

    /// Tells a waiter that has left why it does not get the lock.
    fn refuse(&self, waiter: WaitingCall<W>, env: &mut Env<'_, W>) {
        let error = self.refusal(&waiter, env.now);
        env.fail(waiter.handle, error);
    }

    /// Why a waiter does not get the lock, according to the last answer.
    pub(super) fn refusal(&self, waiter: &WaitingCall<W>, now: Moment) -> LockError {
        match &self.stage {
            Stage::Contending(contending) => contending.refusal(waiter, self.heard, now),
            Stage::Held(held) => busy(waiter, Some(&held.as_blocker(now)), now),
            Stage::Idle | Stage::Kept(_) | Stage::Sharing(_) => busy(waiter, None, now),
        }
    }

    /// The answer took longer than the lease that it grants, which is as good as no answer.
    pub(super) fn spent(&mut self, open: &Open, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &self.stage else { return };
        if !contending.attempt.is_adopted() {
            self.take_fresh_token(None, env);
        }
        let took = env.now.since(open.sent);
        let what =
            format!("the answer took {took:.1?}, longer than the lease; ask for a longer one");
        self.on_failure(open, Fault::new(FaultClass::Late, what), env);
    }

    /// A release of this process was on its way when the lock was asked for, so what makes the lock busy may
    /// be the very token that a caller has given up before it asked. It is no answer for that caller.
    pub(super) fn wait_for_release(&mut self, open: &Open, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.heard.answered_at = open.sent;
        let pending = env.pending.oldest(&contending.demand.names);
        if pending.is_some_and(|release| self.waiters.is_answer_owed_since(release)) {
            contending.look = env.now.after(RELEASE_PAUSE);
        } else {
            self.ask_again(env);
        }
    }

    pub(super) fn on_failure(&mut self, open: &Open, fault: Fault, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.heard.failures = contending.heard.failures.saturating_add(1);
        let (class, failures) = (fault.class, contending.heard.failures);
        contending.heard.last_answer = LastAnswer::Failed(fault);
        contending.heard.answered_at = env.now;
        match class {
            // A connection that was closed while idle is noticed only by the first question.
            FaultClass::Unknown | FaultClass::Late if failures == 1 => self.ask_again(env),
            FaultClass::Unknown
            | FaultClass::Late
            | FaultClass::Refused
            | FaultClass::Moving
            | FaultClass::PartlyDone => {
                if contending.is_outdone() {
                    return self.on_superseded(true, env);
                }
                contending.look = retry_at(class, failures, env);
                self.refuse_late(open.sent, env);
                self.refuse_no_wait(open.sent, env);
                self.abandon_if_unwanted(env);
            }
            FaultClass::Permanent | FaultClass::Misuse | FaultClass::Unsupported => {
                for waiter in self.waiters.drain() {
                    self.refuse(waiter, env);
                }
                self.abandon_if_unwanted(env);
            }
        }
    }

    /// The error of a caller that has waited for an unusable server as long as its `outage` allows.
    pub(super) fn outage(&self, waiter: &WaitingCall<W>, now: Moment) -> LockError {
        let waited = now.since(waiter.asked);
        let fault = match &self.stage {
            Stage::Contending(Contending {
                heard: Heard { last_answer: LastAnswer::Failed(fault), .. },
                ..
            }) => {
                let what = format!("{} (tried for {waited:.1?})", fault.what);
                Fault { what, ..fault.clone() }
            }
            _ => {
                let what = format!(
                    "the server can't be used: no connection within {waited:.1?} that answers"
                );
                Fault::new(FaultClass::Late, what)
            }
        };
        LockError::backend(Some(waiter.demand.key()), &fault)
    }

    pub(crate) fn crowd(&self) -> Crowd {
        let mut crowd = Crowd { waiting: self.waiters.waiting(), ..Crowd::default() };
        match &self.stage {
            Stage::Held(_) => crowd.held = 1,
            Stage::Contending(contending) => {
                let may_get_it = contending.is_first() && !contending.is_held_back();
                crowd.asking = usize::from(may_get_it);
                crowd.refused = if contending.was_refused() { crowd.waiting } else { 0 };
            }
            Stage::Idle | Stage::Kept(_) | Stage::Sharing(_) => {}
        }
        crowd
    }

    /// Whether its call wants no long queue, and was not told yet that the lock is busy. One with `newest` may
    /// then have taken the place of an older call, so that refusing it would leave nobody.
    pub(crate) fn may_be_crowded(&self) -> bool {
        let terms = self.waiters.first().map(|first| &first.demand.terms);
        matches!(&self.stage, Stage::Contending(contending) if !contending.was_refused())
            && terms.is_some_and(|terms| terms.max_waiters.is_some() && !terms.newest)
    }

    /// The lock is busy. Refuses a call that learns this for the first time while too many calls
    /// wait.
    pub(super) fn refuse_crowd(&mut self, open: &Open, env: &mut Env<'_, W>) {
        if open.about == About::Take || !self.may_be_crowded() {
            return;
        }
        let Some(first) = self.waiters.first() else { return };
        let most = first.demand.terms.max_waiters.unwrap_or(usize::MAX);
        if env.waiting >= most && first.can_wait() {
            let waiting = env.waiting;
            if let Some(waiter) = self.waiters.pop() {
                env.refuse(waiter, |key| LockError::Crowded { key, waiting, in_line: false });
            }
        }
    }

    /// Too many tokens wait in line at the server, so this call, which has a separate machine,
    /// must leave.
    pub(super) fn on_crowded(
        &mut self,
        open: &Open,
        waiting: usize,
        holder: Option<(&str, Option<Duration>)>,
        env: &mut Env<'_, W>,
    ) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.attempt.left_nothing();
        let (value, left) = holder.unzip();
        self.tell_done_or_crowded(value, left.flatten(), open.sent, env);
        for waiter in self.waiters.drain() {
            env.refuse(waiter, |key| LockError::Crowded { key, waiting, in_line: true });
        }
        self.abandon_if_unwanted(env);
    }

    /// Whether callers that came before, or a holder of this process, have to be waited for.
    pub(crate) fn is_behind(&self, id: u64) -> bool {
        let is_held = matches!(self.stage, Stage::Held(_));
        is_held
            || self.standing() == LineStanding::HeldBack
            || self.waiters.first().is_some_and(|first| first.id != id)
    }

    /// Tells callers what a value at the key says to them: that what they want to do once was done, or that a
    /// call with other input does it, or has done it. Returns whether calls that want to know such came after the
    /// question was sent. Where nothing was done, those who were let in, and are too many, are refused.
    pub(super) fn tell_done_or_crowded(
        &mut self,
        value: Option<&str>,
        left: Option<Duration>,
        sent: Moment,
        env: &mut Env<'_, W>,
    ) -> bool {
        let done = value.and_then(|value| Done::read(value, left));
        if done.is_none() {
            self.refuse_let_in(env);
        }
        // What `min_hold` keeps was not done.
        let same = match (&done, value) {
            (Some(done), _) => done.token.same(),
            (None, Some(value)) if Mark::read(value).is_none() => Token::from_wire(value).same(),
            (None, _) => None,
        };
        if done.is_none() && same.is_none() {
            return false;
        }
        let news = |waiter: &WaitingCall<W>| {
            let key = || waiter.demand.key().to_owned();
            if waiter.differs(same) {
                return Some(LockError::Mismatch { key: key() });
            }
            let done = done.clone().filter(|_| waiter.demand.terms.once.is_some())?;
            let Done { by, at, until, token, .. } = done;
            let (key, token, no_value) = (key(), Box::new(token), None);
            Some(LockError::Done { key, by, at, until, token, no_value })
        };
        let heard: Vec<_> =
            self.waiters.iter().filter_map(|it| Some((it.id, it.asked, news(it)?))).collect();
        let is_late = heard.iter().any(|(_, asked, _)| *asked > sent);
        for (id, asked, error) in heard {
            if asked <= sent
                && let Some(waiter) = self.waiters.leave(id)
            {
                env.fail(waiter.handle, error);
            }
        }
        is_late
    }

    /// A call of this process has the lock. Calls with other input get `Mismatch`.
    pub(super) fn tell_mismatched(&mut self, same: Option<u128>, env: &mut Env<'_, W>) {
        if same.is_none() {
            return;
        }
        for waiter in self.waiters.take_all(|waiter| waiter.differs(same)) {
            env.refuse(waiter, |key| LockError::Mismatch { key });
        }
    }

    /// Refuses calls that were let in because the lock might have been free, and are too many now.
    fn refuse_let_in(&mut self, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        for id in std::mem::take(&mut contending.let_in) {
            let waiting = self.waiters.waiting().saturating_sub(1);
            let refuses = |it: &WaitingCall<W>| {
                it.demand.terms.max_waiters.is_some_and(|most| waiting >= most)
            };
            if self.waiters.get(id).is_some_and(refuses)
                && let Some(waiter) = self.waiters.leave(id)
            {
                env.refuse(waiter, |key| LockError::Crowded { key, waiting, in_line: false });
            }
        }
    }
}

impl Contending {
    /// Whether the last answer says what a waiter that came as this one did wants to know.
    pub(super) fn is_answer_for<W>(&self, waiter: &WaitingCall<W>) -> bool {
        let is_behind = matches!(&self.heard.last_answer, LastAnswer::Behind(release, _) if waiter.id > *release);
        self.heard.answered_at >= waiter.asked && !is_behind
    }

    /// Why a waiter does not get the lock. `heard` is when the last question was sent that has an
    /// answer: a server that has answered since the waiter came did not fail it.
    pub(super) fn refusal<W>(
        &self,
        waiter: &WaitingCall<W>,
        heard: Moment,
        now: Moment,
    ) -> LockError {
        match &self.heard.last_answer {
            LastAnswer::Failed(fault) if self.heard.answered_at >= waiter.asked => {
                LockError::backend(Some(waiter.demand.key()), fault)
            }
            LastAnswer::Behind(release, _) if waiter.id > *release => {
                let what = "the server did not answer an earlier release of this process";
                let fault = Fault::new(FaultClass::Late, what);
                LockError::backend(Some(waiter.demand.key()), &fault)
            }
            _ if heard < waiter.asked => unanswered(waiter),
            LastAnswer::Busy(blocker) | LastAnswer::Behind(_, blocker) => {
                busy(waiter, Some(blocker), now)
            }
            LastAnswer::Nothing | LastAnswer::Failed(_) => busy(waiter, None, now),
        }
    }
}

/// How many calls wait in machines of one key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Crowd {
    waiting: usize,
    /// Of how many machines the first question is open, so that they may get the lock at once.
    asking: usize,
    /// How many calls have to wait for certain, because the server has refused them.
    pub(crate) refused: usize,
    /// How many machines have the lock.
    held: usize,
}

impl Crowd {
    pub(crate) fn joins(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.asking += other.asking;
        self.refused += other.refused;
        self.held += other.held;
    }

    pub(crate) fn leaves(&mut self, other: Self) {
        self.waiting -= other.waiting;
        self.asking -= other.asking;
        self.refused -= other.refused;
        self.held -= other.held;
    }

    /// How many have to wait. One whose first question is open may get the lock at once, so it does not
    /// count, unless this process has the lock.
    pub(crate) fn waiting(self) -> usize {
        if self.held > 0 { self.waiting } else { self.waiting.saturating_sub(self.asking) }
    }
}
