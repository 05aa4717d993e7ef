//! The release of a token.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::question::{About, Open};
use super::timing::MAX_MOVE_WAIT;
use super::{Attempt, Confirm, OnServer, Outcome};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::{Kind, LockSort, Title};
use crate::domain::label::harmless;
use crate::domain::lease::whole_millis;
use crate::domain::mark::{Mark, MarkKind};
use crate::domain::names::Names;
use crate::domain::value::StoredValue;
use crate::store::groups::is_split;
use crate::store::{Answer, Command, Keep, PLACE, Verb};
use crate::sync::NonPoisonMutex;
use crate::{LockError, LossReason, Token};

/// The first and the longest pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The release of an attempt, until the server has forgotten its token.
#[derive(Debug)]
#[must_use = "a token that is not released stays on the server until its lease ends"]
pub(crate) struct Reap {
    attempt: Attempt,
    names: Names,
    kind: Kind,
    title: Title,
    /// How long one try may take.
    timeout: Duration,
    /// Whether a waiter is likely to be in the queue.
    waited_for: bool,
    /// Keep the lock until then instead of freeing it, by this mark, and with this value beside it.
    keep_until: Option<(Moment, Arc<str>, Option<StoredValue>)>,
    /// Give this value to those who wait and share, for as long.
    share: Option<(StoredValue, Duration)>,
    /// The number of an open question about the token whose outcome is irrelevant by now.
    drops: Option<u64>,
    /// When the lease of its hold ends by this side's clock. If the token is gone before that, an
    /// earlier try may have released it.
    held_until: Moment,
    confirm: Option<Confirm>,
    /// When the caller gets the error that no answer came in time.
    deadline: Moment,
    tries: u32,
    /// What earlier tries have done.
    past: PastTries,
    /// Whether an acquisition of it was open when it was given up.
    unanswered: bool,
    /// When the server will have forgotten the token without a release.
    gone_by: Moment,
    /// Notes it until a server has answered it.
    pending: Option<PendingRelease>,
    /// Why the last try failed.
    fault: Option<Fault>,
}

/// What the tries to release a token have done by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PastTries {
    Nothing,
    /// A try with an unknown outcome may have released it.
    Perhaps,
    /// The server has answered.
    Answered,
}

/// What to do after a try to release a token.
#[derive(Debug)]
pub(crate) enum Next {
    /// The server that was asked has forgotten it.
    Done(Box<Reap>),
    /// Release it again at this time.
    Again(Moment, Box<Reap>),
}

/// A caller, and the outcome to report to it.
pub(crate) type Confirmation = (Confirm, Result<(), LockError>);

impl Reap {
    /// The release of an attempt, which also drops its open question. `None` when the server has
    /// nothing to forget. It is boxed from the beginning, because it is large and is moved
    /// often.
    pub(super) fn of(attempt: Attempt, open: Option<Open>, demand: &Demand) -> Option<Box<Self>> {
        if attempt.on_server() == OnServer::Nothing && open.is_none() {
            attempt.ends();
            return None;
        }
        let acquires = |open: &Open| matches!(open.about, About::Take | About::Acquire { .. });
        Some(Box::new(Self {
            unanswered: open.as_ref().is_some_and(acquires),
            attempt,
            names: demand.names.clone(),
            kind: demand.kind,
            title: demand.title,
            timeout: demand.terms.timeout,
            waited_for: false,
            keep_until: None,
            share: None,
            drops: open.map(|open| open.number),
            held_until: Moment::START,
            confirm: None,
            deadline: Moment::NEVER,
            tries: 0,
            past: PastTries::Nothing,
            gone_by: Moment::NEVER,
            pending: None,
            fault: None,
        }))
    }

    pub(super) fn waited_for(mut self: Box<Self>, waited_for: bool) -> Box<Self> {
        self.waited_for = waited_for;
        self
    }

    pub(super) fn of_hold(mut self: Box<Self>, held_until: Moment) -> Box<Self> {
        self.held_until = held_until;
        self
    }

    pub(super) fn keep_until(
        mut self: Box<Self>,
        end: Moment,
        kind: MarkKind,
        value: Option<&StoredValue>,
    ) -> Box<Self> {
        let token = self.attempt.wire();
        let value = value.map(|value| value.of_token(token));
        self.keep_until = Some((end, Mark::value(kind, token), value));
        if !self.kind.is_value() {
            self.attempt.keep_until(end);
            self.unanswered |= self.drops.is_some();
        }
        self
    }

    pub(super) fn share(
        mut self: Box<Self>,
        value: Option<&StoredValue>,
        ttl: Option<Duration>,
    ) -> Box<Self> {
        let value = value.map(|value| value.of_token(self.attempt.wire()));
        self.share = value.zip(ttl);
        self
    }

    /// How a try at this time keeps the lock. When the time to keep it is over, it is released.
    fn keep(&self, at: Moment) -> Option<Keep> {
        let (end, mark, value) = self.keep_until.as_ref()?;
        let time = whole_millis(end.since(at));
        let is_released = time.is_zero() || planted!(CompleteReleased) && self.tries > 0;
        let value = value.clone();
        (!is_released).then(|| Keep { time, mark: Arc::clone(mark), value })
    }

    pub(super) fn confirm(mut self: Box<Self>, confirm: Option<Confirm>, now: Moment) -> Box<Self> {
        self.deadline = now.after(self.timeout);
        self.confirm = confirm;
        self
    }

    /// Notes that it is on its way, unless that was noted before.
    pub(crate) fn begin(&mut self, pending: &Arc<PendingReleases>, number: impl FnOnce() -> u64) {
        if self.pending.is_none() && !self.was_answered() {
            self.pending = Some(PendingRelease::note(pending, &self.names, number()));
        }
    }

    /// Takes the number of the open question that this release drops.
    pub(crate) fn dropped_question(&mut self) -> Option<u64> {
        self.drops.take()
    }

    /// The question that this release drops may have been sent to another place than the release.
    pub(crate) fn doubt_dropped(&mut self, now: Moment) {
        if self.drops.is_some() {
            self.doubt(now);
        }
    }

    /// The question that this release drops has an unknown outcome.
    pub(crate) fn doubt(&mut self, now: Moment) {
        if self.unanswered {
            self.doubt_all(now);
        }
    }

    /// Any of its questions may have an unknown outcome.
    pub(super) fn doubt_all(&mut self, now: Moment) {
        let longest = self.attempt.longest();
        self.attempt.doubt(now, Some(longest));
    }

    /// When the server will have forgotten the token without a release.
    pub(crate) fn gone_by(&self) -> Moment {
        self.gone_by
    }

    /// Prepares to release the token once more: a server that never received the release has
    /// replaced the one that executed it.
    pub(crate) fn repeated(mut self: Box<Self>) -> Box<Self> {
        self.attempt.may_be_back();
        // The time at which it is given up stays that of the first try.
        (self.tries, self.past) = (1, PastTries::Answered);
        self
    }

    /// Whether a caller waits for the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.confirm.is_some()
    }

    /// Whether it is for keys of several slots.
    pub(crate) fn is_split(&self) -> bool {
        is_split(self.kind, &self.names)
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// The label of its numbers.
    pub(crate) fn sort(&self) -> LockSort {
        (self.kind, self.title)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether its last try has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the server has answered a try.
    pub(crate) fn was_answered(&self) -> bool {
        self.past == PastTries::Answered
    }

    #[cfg(test)]
    pub(crate) fn put_in_doubt(&mut self, sent: Moment, ttl: Option<Duration>) {
        self.attempt.doubt(sent, ttl);
    }

    pub(crate) fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// When the caller that waits learns that no answer came.
    pub(crate) fn deadline(&self) -> Moment {
        if self.confirm.is_some() { self.deadline } else { Moment::NEVER }
    }

    /// The report for the caller at its deadline. The release continues.
    pub(crate) fn overdue(&mut self) -> Option<Confirmation> {
        let late =
            || Fault::new(FaultClass::Late, "the server did not confirm the release in time");
        let fault = self.fault.clone().unwrap_or_else(late);
        self.confirmation(Err(LockError::backend(Some(self.names.user_key()), &fault)))
    }

    /// The command of the next try.
    pub(crate) fn command(&self, now: Moment) -> Command {
        // The tombstone lasts until no acquisition can arrive any more.
        let tombstone = match self.attempt.on_server() {
            OnServer::InDoubt { until } if !planted!(NoTombstone) => Some(until.since(now)),
            _ => None,
        };
        let tombstone = tombstone.map(whole_millis).filter(|rest| !rest.is_zero());
        let verb = Verb::Release {
            token: Arc::clone(self.attempt.wire()),
            waited_for: self.waited_for,
            keep: self.keep(now),
            share: self.share.clone(),
            tombstone,
        };
        Command { names: self.names.clone(), kind: self.kind, verb, timeout: self.timeout }
    }

    /// Handles the outcome of a try that was created at `sent`: returns what to report to the
    /// caller, and what to do next.
    pub(crate) fn outcome(
        mut self: Box<Self>,
        outcome: Outcome,
        sent: Moment,
        now: Moment,
    ) -> (Option<Confirmation>, Next) {
        self.tries = self.tries.saturating_add(1);
        if self.tries == 1 {
            self.gone_by = sent.after(self.attempt.longest().max(PLACE)).after(LONGEST_PAUSE);
        }
        match outcome {
            Outcome::Answered(answer) => {
                let verdict = self.verdict(&answer, sent);
                let confirmation = self.confirmation(verdict);
                (confirmation, self.answered(answer == Answer::Freed, now))
            }
            Outcome::Refused(fault) => {
                let is_final = fault.class.is_final();
                self.fault = Some(fault);
                // A release that was certainly not executed is tried again for as long as the
                // caller waits.
                let confirmation = if is_final { self.overdue() } else { None };
                (confirmation, self.again(now))
            }
            Outcome::Unknown(fault) => {
                if sent < self.held_until && !self.was_answered() && !planted!(TryForgotten) {
                    self.past = PastTries::Perhaps;
                }
                self.fault = Some(fault);
                // The connection of the release broke as well, and an acquisition on it may still be
                // executed.
                self.doubt(now);
                (None, self.again(now))
            }
        }
    }

    /// The server has answered. If the answer is in doubt, an acquisition may still arrive. If the token
    /// blocks no client but is not gone, the rest is removed when the node allows it. In both cases the
    /// release is repeated.
    fn answered(mut self: Box<Self>, is_rest_left: bool, now: Moment) -> Next {
        self.unanswered &= is_rest_left;
        // The fault would change the pause before the next repetition.
        (self.past, self.fault, self.pending) = (PastTries::Answered, None, None);
        let until = match self.attempt.on_server() {
            _ if is_rest_left => self.gone_by,
            OnServer::InDoubt { until } => until,
            OnServer::Asked | OnServer::Nothing => now,
        };
        if now >= until {
            return self.done();
        }
        let at = now.after(self.pause());
        Next::Again(at, self)
    }

    fn again(mut self: Box<Self>, now: Moment) -> Next {
        let until = match self.attempt.on_server() {
            OnServer::InDoubt { until } => until.max(self.gone_by),
            OnServer::Asked | OnServer::Nothing => self.gone_by,
        };
        if now >= until && self.confirm.is_none() {
            return self.done();
        }
        if planted!(FreshDeadlines) {
            self.deadline = now.after(self.timeout);
        }
        // A connection that was closed while idle is noticed only by the first try.
        let at = if self.tries == 1 { now } else { now.after(self.pause()) };
        Next::Again(at, self)
    }

    fn done(mut self: Box<Self>) -> Next {
        self.pending = None;
        // A release that may have to be repeated is remembered for long, and values are large.
        self.share = None;
        if let Some((_, _, value)) = &mut self.keep_until {
            *value = None;
        }
        self.attempt.forgotten();
        Next::Done(self)
    }

    fn pause(&self) -> Duration {
        if self.fault.as_ref().is_some_and(|fault| fault.class.is_moving()) {
            return MAX_MOVE_WAIT;
        }
        (FIRST_PAUSE * (1 << self.tries.saturating_sub(1).min(6))).min(LONGEST_PAUSE)
    }

    fn confirmation(&mut self, outcome: Result<(), LockError>) -> Option<Confirmation> {
        Some((self.confirm.take()?, outcome))
    }

    /// What the answer to a release means for the caller.
    fn verdict(&self, answer: &Answer, sent: Moment) -> Result<(), LockError> {
        let Answer::Gone { by, because } = answer else { return Ok(()) };
        let mark = self.keep(sent).map(|keep| keep.mark);
        // An earlier try has left its mark.
        if self.tries > 1 && mark.is_some() && mark.as_deref() == by.as_deref() {
            return Ok(());
        }
        // An earlier try may have released it, and another waiter may have it by now. What it has
        // completed would have its mark.
        let completes = mark.is_some_and(|mark| Mark::read_done(&mark).is_some());
        let others_token = planted!(OthersTokenIsLoss) && by.is_some();
        if self.past == PastTries::Perhaps && !completes && !others_token {
            return Ok(());
        }
        Err(LockError::Lost {
            key: self.names.user_key().to_owned(),
            reason: lost_to(by.as_deref(), because.as_deref()),
        })
    }

    /// Gives up the token without another try, because the engine ends.
    pub(crate) fn give_up(self) -> Option<Confirm> {
        self.attempt.ends();
        self.confirm
    }
}

/// The releases that no server has answered yet, by key, with numbers in their order. They may be at
/// another server than the next question of their key, or wait to be repeated.
#[derive(Debug, Default)]
pub(crate) struct PendingReleases(NonPoisonMutex<BTreeSet<(Arc<str>, u64)>>);

impl PendingReleases {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// The number of the oldest one of these keys.
    pub(crate) fn oldest(&self, names: &Names) -> Option<u64> {
        let pending = self.0.lock();
        let of_key = |names: &Names| {
            let first = pending.range((names.shared_main(), 0)..).next();
            first.filter(|(key, _)| **key == *names.main()).map(|(_, number)| *number)
        };
        if pending.is_empty() { None } else { names.all().filter_map(of_key).min() }
    }
}

/// One entry of the count. Dropping it ends the entry, even if a bug makes its owner panic.
#[derive(Debug)]
struct PendingRelease {
    all: Arc<PendingReleases>,
    names: Names,
    number: u64,
}

impl PendingRelease {
    fn note(all: &Arc<PendingReleases>, names: &Names, number: u64) -> Self {
        all.0.lock().extend(names.all().map(|names| (names.shared_main(), number)));
        Self { all: Arc::clone(all), names: names.clone(), number }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        for names in self.names.all() {
            all.remove(&(names.shared_main(), self.number));
        }
    }
}

/// The most characters of a reason that another process gave.
const MOST_REASON: usize = 1_024;

/// The reason of a loss, from the server's answer.
pub(crate) fn lost_to(by: Option<&str>, because: Option<&str>) -> LossReason {
    match by {
        Some(by) => LossReason::Overwritten { by: Token::from_wire(by) },
        None => LossReason::Removed { because: because.map(|text| harmless(text, MOST_REASON)) },
    }
}
