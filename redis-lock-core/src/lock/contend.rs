//! Contending: getting the lock from the server.

use std::sync::Arc;

use super::attempt::Lease;
use super::held::Numbers;
use super::local_view::LastAnswer;
use super::question::{About, Open};
use super::timing::{ASK_WAIT, HandOverRequest, HintThrottle, look_at};
use super::{
    Attempt, Env, Heard, LineStanding, Machine, OnServer, Outcome, Reap, Stage, asked_ttl,
};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::lease::FENCES;
use crate::domain::status::{AskOutcome, IdleEvent};
use crate::observe::Observation;
use crate::store::{ASK, Acquire, Answer, Blocker, PLACE, Verb};
use crate::{BackendErrorKind, LockError};

/// After so many refusals a call for several keys keeps those that are free: it might wait for ever.
const ROUNDS: u32 = 3;

/// The stage in which an attempt contends for the lock.
#[derive(Debug)]
pub(super) struct Contending {
    pub(super) attempt: Attempt,
    /// The demand of the waiter for whom the last question was asked.
    pub(super) demand: Arc<Demand>,
    /// Whether a place in the queue was asked for, so that messages may name the token.
    may_be_queued: bool,
    /// When to ask again, if no question is open at that time; never while it is held back.
    pub(super) look: Moment,
    /// Whether a hint came while a question was open, so that another one follows.
    hinted: bool,
    throttle: HintThrottle,
    /// Consecutive looks that found the same holder.
    looks: u32,
    /// How often the lock was busy.
    refusals: u32,
    pub(super) heard: Heard,
    /// The oldest release of its keys that no server had answered when the last question was sent.
    behind: Option<u64>,
    hand_over: HandOverRequest,
    /// When a message has named the token for the first time since the last answer.
    pub(super) told: Option<Moment>,
    /// When a later call with `newest` of this `Locks` came.
    pub(super) followed: Option<Moment>,
    /// Calls that were let in because the lock may be free, and that accept no more waiters.
    pub(super) let_in: Vec<u64>,
}

impl Contending {
    fn new(attempt: Attempt, demand: &Arc<Demand>, now: Moment) -> Self {
        Self {
            attempt,
            demand: Arc::clone(demand),
            may_be_queued: false,
            look: now,
            hinted: false,
            throttle: HintThrottle::default(),
            looks: 0,
            refusals: 0,
            heard: Heard::nothing(now),
            behind: None,
            hand_over: HandOverRequest::Not,
            told: None,
            followed: None,
            let_in: Vec::new(),
        }
    }

    /// Whether to follow a hint now. If another one was followed a moment ago, the next look is set
    /// for soon.
    fn follows_hint(&mut self, now: Moment) -> bool {
        let at = self.throttle.follow_at(now);
        if at > now {
            if at < self.look {
                // That look follows all hints until then, so it counts as a followed hint.
                self.look = at;
                self.throttle.followed(at);
            }
            return false;
        }
        self.throttle.followed(now);
        true
    }

    /// Whether the server has not answered yet.
    pub(super) fn is_first(&self) -> bool {
        matches!(self.heard.last_answer, LastAnswer::Nothing)
    }

    /// Whether the server has said that the lock is busy, or it was held back.
    pub(super) fn was_refused(&self) -> bool {
        self.refusals > 0
    }

    /// The token, if messages may name it.
    pub(super) fn queued_token(&self) -> Option<&Arc<str>> {
        self.may_be_queued.then(|| self.attempt.wire())
    }

    /// Whether it waits in this process, and nothing was asked for it, because many others of the process
    /// wait at the server.
    pub(super) fn is_held_back(&self) -> bool {
        self.look == Moment::NEVER
    }

    /// Whether the answer of a holder that may be idle is awaited.
    pub(super) fn waits_for_holder(&self) -> bool {
        self.hand_over == HandOverRequest::Waits
    }

    /// Sets how long to wait for a holder that was asked by a question sent at `sent`.
    fn wait_for_holder(&mut self, sent: Moment, now: Moment) {
        self.hand_over = HandOverRequest::Waits;
        let wait = ASK_WAIT.max(now.since(sent) * 3).min(self.demand.terms.timeout / 2);
        self.look = now.after(wait);
    }

    /// Whether a free lock may be taken for this demand without asking for anything else.
    fn may_take(&self, demand: &Demand) -> bool {
        demand.kind.is_pooled()
            && self.attempt.on_server() == OnServer::Nothing
            && !demand.terms.fenced
            && demand.terms.repair_orphan.is_none()
            && demand.terms.once.is_none()
            && !demand.terms.is_alone()
    }

    /// Notes by whom the lock was found busy. Returns whether that is news.
    fn found_busy(&mut self, blocker: &Blocker) -> bool {
        let last = match &self.heard.last_answer {
            LastAnswer::Busy(last) => Some(&last.value),
            _ => None,
        };
        let is_news = self.looks == 0 && last.is_none();
        self.looks = if last == Some(&blocker.value) { self.looks.saturating_add(1) } else { 0 };
        is_news
    }

    /// Whether the server's last answer was a failure, or is missing.
    pub(super) fn is_in_trouble(&self, is_open: bool) -> bool {
        is_open || self.heard.failures > 0
    }
}

impl<W> Machine<W> {
    /// Begins to contend for the first waiter, with a fresh token.
    pub(super) fn start(&mut self, env: &mut Env<'_, W>) {
        let Some(first) = self.waiters.first() else {
            self.stage = Stage::Idle;
            return;
        };
        let demand = Arc::clone(&first.demand);
        let attempt = match &demand.adopts {
            Some(adopted) => Attempt::of(adopted.token.clone(), &demand, env.now),
            None => env.attempt(&demand, true),
        };
        let mut contending = Contending::new(attempt, &demand, env.now);
        self.waited_for = false;
        if demand.waits_in_line() && env.line.holds_back(&demand) {
            // It counts as refused: that it has to wait is told at once, and that it may is decided.
            (contending.look, contending.looks, contending.refusals) = (Moment::NEVER, 1, 1);
            self.stage = Stage::Contending(contending);
            return;
        }
        self.stage = Stage::Contending(contending);
        self.ask_again(env);
    }

    /// Gives up the present token and begins with a fresh one.
    pub(super) fn start_over(&mut self, open: Option<Open>, env: &mut Env<'_, W>) {
        self.take_fresh_token(open, env);
        self.ask_again(env);
    }

    pub(super) fn take_fresh_token(&mut self, open: Option<Open>, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = self.take_stage(env) else { return };
        env.part(Reap::of(contending.attempt, open, &contending.demand));
        let Some(first) = self.waiters.first() else { return };
        let demand = Arc::clone(&first.demand);
        let attempt = env.attempt(&demand, false);
        // An outage is not over because of a fresh token.
        self.stage = Stage::Contending(Contending {
            refusals: contending.refusals,
            heard: contending.heard,
            followed: contending.followed,
            let_in: contending.let_in,
            ..Contending::new(attempt, &demand, env.now)
        });
    }

    /// Asks the server for the token; there is no open question.
    pub(super) fn ask_again(&mut self, env: &mut Env<'_, W>) {
        let patient = self.waiters.any_can_wait();
        let may_be_free = !self.contended;
        let (Stage::Contending(contending), Some(first)) = (&mut self.stage, self.waiters.first())
        else {
            return;
        };
        let demand = Arc::clone(&first.demand);
        if contending.is_outdone() {
            return self.on_superseded(true, env);
        }
        // The first waiter may now ask for another lease, so the old attempt is released.
        if !contending.attempt.suits(&demand) || contending.may_end_newer(env.now) {
            return self.start_over(None, env);
        }
        let ttl = asked_ttl(&demand);
        let token = Arc::clone(contending.attempt.wire());
        let ordered = contending.refusals >= ROUNDS;
        let blind = may_be_free && contending.may_take(&demand);
        let (about, verb) = if contending.attempt.is_adopted() {
            (About::Renew, Verb::Renew { token, ttl })
        } else if blind {
            (About::Take, Verb::Take { token, ttl })
        } else {
            let queue = patient.then_some(PLACE);
            let fences = if demand.terms.fenced { FENCES } else { 0 };
            let asks = !patient && env.hints && demand.kind == Kind::Mutex;
            let ask = (asks && contending.hand_over == HandOverRequest::Not).then_some(ASK);
            let terms = Acquire {
                token,
                ttl,
                queue,
                fair: demand.terms.fair,
                fences,
                slotted: demand.terms.slotted,
                share: demand.terms.share,
                repair_orphan: demand.terms.repair_orphan,
                most_waiting: demand.terms.queue,
                newest: contending.newest(),
                ask,
            };
            (About::Acquire { queues: patient, ordered }, Verb::Acquire(terms))
        };
        if contending.heard.failures == 0 {
            // The server has answered until now; an outage is counted from here.
            contending.heard.useful = env.now;
        }
        if contending.hand_over == HandOverRequest::Waits {
            contending.hand_over = HandOverRequest::Over { answered: contending.told.is_some() };
        }
        contending.attempt.asked(ttl);
        if let Verb::Acquire(Acquire { queue, ask, .. }) = &verb {
            contending.may_be_queued |= queue.is_some() || ask.is_some();
        }
        contending.behind = env.pending.oldest(&demand.names);
        contending.demand = Arc::clone(&demand);
        contending.look = contending.look.min(env.now);
        contending.hinted = false;
        self.send(&demand, about, verb, env);
    }

    pub(crate) fn standing(&self) -> LineStanding {
        match &self.stage {
            Stage::Contending(contending) if contending.is_held_back() => LineStanding::HeldBack,
            Stage::Contending(contending) if contending.demand.waits_in_line() => {
                LineStanding::Asks
            }
            _ => LineStanding::Outside,
        }
    }

    /// What it has learned, for those behind it in the line.
    pub(crate) fn heard(&self) -> Option<Heard> {
        let Stage::Contending(contending) = &self.stage else { return None };
        let failures = contending.heard.failures.max(u32::from(self.open.is_some()));
        Some(Heard { at: self.heard, failures, ..contending.heard.clone() })
    }

    /// While it is held back, it has heard what the first of its line has.
    pub(crate) fn hear(&mut self, first: Heard, now: Moment) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        if contending.is_held_back() {
            self.heard = first.at;
            // An outage is counted from the question that began it.
            let useful = if first.failures == 0 { now } else { first.useful };
            contending.heard = Heard { useful, ..first };
        }
    }

    /// One of the first has left, so it asks the server at its next tick.
    pub(crate) fn come_forward(&mut self, now: Moment) {
        if let Stage::Contending(contending) = &mut self.stage
            && !planted!(StaysBehind)
        {
            contending.look = contending.look.min(now);
        }
    }

    /// Handles the outcome of a question while contending.
    pub(super) fn on_outcome_contending(
        &mut self,
        open: Open,
        outcome: Outcome,
        env: &mut Env<'_, W>,
    ) {
        match outcome {
            Outcome::Answered(Answer::Held { fence, slot }) => {
                self.on_granted(&open, (fence, slot), env);
            }
            Outcome::Answered(Answer::Busy(blocker)) => self.on_busy(&open, blocker, env),
            Outcome::Answered(Answer::Superseded { held }) => self.on_superseded(held, env),
            Outcome::Answered(Answer::Crowded { waiting, holder, left }) => {
                self.on_crowded(&open, waiting, holder.as_deref().map(|it| (it, left)), env);
            }
            Outcome::Answered(Answer::Shared(value)) => self.on_shared(&value, env),
            Outcome::Answered(Answer::Renewed { slot, .. }) => {
                self.on_granted(&open, (None, slot), env);
            }
            Outcome::Answered(Answer::Done) => self.on_granted(&open, (None, None), env),
            Outcome::Answered(Answer::Gone { by, because }) => {
                let reason = super::lost_to(by.as_deref(), because.as_deref());
                self.not_adopted(&reason, env);
            }
            Outcome::Answered(_) => self.start_over(None, env),
            Outcome::Refused(fault) => self.on_failure(&open, fault, env),
            Outcome::Unknown(fault) => {
                if let Stage::Contending(contending) = &mut self.stage {
                    contending.attempt.doubt_question(&open, env.now);
                }
                self.on_failure(&open, fault, env);
            }
        }
    }

    /// The token that was to be adopted no longer has the lock.
    fn not_adopted(&mut self, reason: &crate::LossReason, env: &mut Env<'_, W>) {
        for waiter in self.waiters.drain() {
            env.refuse(waiter, |key| LockError::Lost { key, reason: reason.clone() });
        }
        let Stage::Contending(contending) = self.take_stage(env) else { return };
        // Of several keys, those that the token has may belong to a process that adopted it rightly.
        let is_single = !matches!(contending.demand.kind, Kind::All { .. });
        if is_single && contending.attempt.is_in_doubt() {
            // An acquisition of the process that gave it away may still be executed.
            env.part(Reap::of(contending.attempt, None, &contending.demand));
        } else {
            contending.attempt.ends();
        }
    }

    /// A message says that this token was granted the lock, which only the server can confirm.
    pub(crate) fn on_hint(&mut self, token: &str, waited_for: bool, env: &mut Env<'_, W>) {
        let is_it = self.awaited().is_some_and(|awaited| **awaited == *token);
        if is_it && !planted!(HintNotFollowed) {
            self.waited_for |= waited_for;
            if let Stage::Contending(contending) = &mut self.stage {
                contending.told.get_or_insert(env.now);
            }
            self.look_soon(env);
            self.look_for_newer(env);
        }
    }

    /// Asks now, or as soon as the open question has its outcome.
    pub(super) fn look_soon(&mut self, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        if self.open.is_some() {
            contending.hinted = true;
        } else if contending.is_held_back() {
            // Those before it look.
        } else if contending.follows_hint(env.now) {
            self.ask_again(env);
        }
    }

    fn on_granted(&mut self, open: &Open, (fence, slot): Numbers, env: &mut Env<'_, W>) {
        let Stage::Contending(contending) = &mut self.stage else { return };
        if Lease::granted(open, &contending.attempt).end <= env.now {
            return self.spent(open, env);
        }
        contending.heard.useful = env.now;
        // A caller that waits for its first answer gets it, even if that is a little late.
        self.refuse_overdue_after_busy(env);
        let (Stage::Contending(contending), Some(first)) = (&mut self.stage, self.waiters.first())
        else {
            return;
        };
        let demand = Arc::clone(&first.demand);
        if !contending.attempt.suits(&demand) {
            // The waiter that it was asked for has left.
            return self.start_over(None, env);
        }
        let lacks_slot = demand.terms.slotted && slot.is_none();
        let lacks_fence = demand.terms.fenced && fence.is_none();
        if (lacks_fence || lacks_slot) && !contending.attempt.is_adopted() {
            if contending.demand.terms.fenced || lacks_slot {
                // To ask again would go on for ever: the server has no number to give.
                self.take_fresh_token(None, env);
                let what = "the server granted the lock without the number that was asked for";
                let fault = Fault::new(FaultClass::Permanent, what).of(BackendErrorKind::Protocol);
                return self.on_failure(open, fault, env);
            }
            // The question was that of a caller who wanted no numbers, and has left.
            return self.ask_again(env);
        }
        let Stage::Contending(contending) = self.take_stage(env) else { return };
        let (was_free, hinted) = (contending.refusals == 0, contending.hinted);
        if !matches!(contending.hand_over, HandOverRequest::Not | HandOverRequest::Refused) {
            env.idle(contending.demand.sort(), IdleEvent::Asked(AskOutcome::HandedOver));
        }
        self.hand_out(contending.attempt, open, (fence, slot), was_free, env);
        if hinted {
            // It may have said that a newer call has come.
            self.look_for_newer(env);
        }
    }

    fn on_busy(&mut self, open: &Open, blocker: Blocker, env: &mut Env<'_, W>) {
        self.contended = true;
        self.refuse_crowd(open, env);
        let Stage::Contending(contending) = &mut self.stage else { return };
        contending.told.take_if(|told| *told <= open.sent);
        contending.heard.failures = 0;
        contending.refusals = contending.refusals.saturating_add(1);
        contending.heard.useful = env.now;
        if open.about == About::Take {
            return self.ask_again(env);
        }
        if blocker.asked && contending.hand_over == HandOverRequest::Not {
            contending.wait_for_holder(open.sent, env.now);
            contending.heard.last_answer = LastAnswer::Busy(blocker);
            if contending.hinted && contending.follows_hint(env.now) {
                self.ask_again(env);
            }
            return;
        }
        if let About::Acquire { queues: false, ordered: false } = open.about {
            contending.attempt.left_nothing();
        }
        if let HandOverRequest::Over { answered } = contending.hand_over {
            let outcome = if answered { AskOutcome::InUse } else { AskOutcome::Silent };
            env.idle(contending.demand.sort(), IdleEvent::Asked(outcome));
            contending.hand_over = HandOverRequest::Refused;
        }
        if let Some(release) = contending.behind
            && self.waiters.is_answer_owed_since(release)
        {
            contending.heard.last_answer = LastAnswer::Behind(release, blocker);
            return self.wait_for_release(open, env);
        }
        if contending.found_busy(&blocker) && env.effects.listening {
            let demand = Arc::clone(&contending.demand);
            env.observe(Observation::Contended(demand, blocker.value.clone()));
        }
        contending.look = look_at(&blocker, contending.looks, env);
        // An answer describes a time after its question was sent, not before.
        contending.heard.answered_at = open.sent;
        let is_own = |blocker: &Blocker| blocker.is_of(env.manager);
        // A token of ours may be being released.
        let was_own =
            matches!(&contending.heard.last_answer, LastAnswer::Busy(last) if is_own(last));
        let again = self.waiters.any_no_wait() && !was_own && is_own(&blocker);
        let (value, left) = (blocker.value.clone(), blocker.ttl);
        contending.heard.last_answer = LastAnswer::Busy(blocker);
        let owes_done = self.tell_done_or_crowded(value.as_deref(), left, open.sent, env);
        self.refuse_late(open.sent, env);
        self.abandon_if_unwanted(env);
        let Stage::Contending(contending) = &mut self.stage else { return };
        if again || owes_done || contending.hinted && contending.follows_hint(env.now) {
            // There was a hint, or a release of our own is on its way.
            return self.ask_again(env);
        }
        self.refuse_no_wait(open.sent, env);
        self.abandon_if_unwanted(env);
        self.ask_for_those_owed_an_answer(env);
    }

    /// Asks again for callers that came after the question was sent.
    fn ask_for_those_owed_an_answer(&mut self, env: &mut Env<'_, W>) {
        let impatient = self.waiters.any_no_wait() && !planted!(NextLook);
        if impatient || self.waiters.any_late() {
            self.ask_again(env);
        }
    }

    /// Releases the token when no waiter is left.
    pub(super) fn abandon_if_unwanted(&mut self, env: &mut Env<'_, W>) {
        if !self.waiters.is_empty() || !matches!(self.stage, Stage::Contending(_)) {
            return;
        }
        let open = self.open.take();
        let Stage::Contending(contending) = self.take_stage(env) else { return };
        if contending.attempt.is_adopted() {
            // The token is not ours alone: the process that gave it away may adopt it again.
            contending.attempt.ends();
        } else {
            env.part(Reap::of(contending.attempt, open, &contending.demand));
        }
    }
}
