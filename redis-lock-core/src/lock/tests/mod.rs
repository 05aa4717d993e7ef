//! The machine by itself: no server, no clock of its own, one event after the other.

mod acquiring;
mod adopting;
mod asking;
mod events;
mod holding;
mod kept;
mod kept_faults;
mod line;
mod long_waits;
mod margin;
mod newest;
mod once;
mod outage;
mod queue;
mod reaping;
mod releasing;
mod share;
mod timing;
mod waiting;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::oneshot;

use super::*;
use crate::LossReason;
use crate::domain::demand::tests::demand;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::value::Finish;
use crate::observe::Observation;
use crate::store::{Answer, Blocker};

/// How long an answer takes.
const RTT: u64 = 10;

/// A machine with a clock that the test moves, and what came out of it.
pub(crate) struct Bench {
    machine: Machine<u64>,
    now: u64,
    effects: Effects<u64>,
    manager: Arc<str>,
    numbers: AtomicU64,
    pending: Arc<PendingReleases>,
    hints: bool,
    lingers: bool,
    line: LineView,
    waiting: usize,
    answered: Moment,
    spread: u8,
}

impl<W> Machine<W> {
    /// Panics while the stage is out of the machine, as a bug may.
    pub(crate) fn break_while_moved(&mut self, env: &mut Env<'_, W>) {
        let _stage = self.take_stage(env);
        panic!("a planted bug");
    }
}

/// Gives up all that is left, so that only what the machine itself forgets is a failure.
impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.step(|machine, env| {
                machine.close(&LockError::Shutdown, &LossReason::Shutdown, env)
            });
            self.parted();
            assert!(self.machine.is_idle(), "{:?}", self.machine);
        }
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            machine: Machine::new(),
            now: 1_000,
            effects: Effects::default(),
            manager: "m".into(),
            numbers: AtomicU64::new(1),
            pending: Arc::default(),
            hints: true,
            lingers: true,
            line: LineView::HasRoom,
            waiting: 0,
            answered: Moment::START,
            spread: 0,
        }
    }

    fn moment(&self) -> Moment {
        Moment::at_millis(self.now)
    }

    /// One event, at the present time.
    fn step<R>(&mut self, event: impl FnOnce(&mut Machine<u64>, &mut Env<'_, u64>) -> R) -> R {
        let mut env = Env {
            now: Moment::at_millis(self.now),
            hints: self.hints,
            lingers: self.lingers,
            line: self.line,
            waiting: self.waiting,
            answered: self.answered,
            manager: &self.manager,
            spread: self.spread,
            numbers: &self.numbers,
            pending: &self.pending,
            process: crate::domain::env::process(),
            effects: &mut self.effects,
        };
        let done = event(&mut self.machine, &mut env);
        self.effects.moved.clear();
        self.confirm();
        done
    }

    /// Tells the callers what is reported to them.
    fn confirm(&mut self) {
        let is_confirmation = |later: &mut Later<u64>| matches!(later, Later::Confirm(..));
        for later in self.effects.later.extract_if(.., is_confirmation) {
            if let Later::Confirm(confirm, outcome) = later {
                let _ = confirm.send(outcome.map_err(|error| *error));
            }
        }
    }

    pub(crate) fn ask(&mut self, id: u64, demand: Demand) {
        let demand = Arc::new(demand);
        let waiter = |demand, asked| WaitingCall { id, handle: id, demand, asked };
        let taken = self.step(|machine, env| machine.ask(demand, waiter, env));
        self.effects.later.extend(taken.map(|hold| Later::Grant(id, hold)));
    }

    pub(crate) fn cancel(&mut self, id: u64) -> bool {
        self.step(|machine, env| machine.cancel(id, env))
    }

    fn tick(&mut self, later: u64) {
        self.now += later;
        self.step(Machine::tick);
    }

    pub(crate) fn release(&mut self, hold: &Arc<Hold>) -> Confirmed {
        let (confirm, confirmed) = oneshot::channel();
        let mut confirm = Some(confirm);
        let known = self
            .step(|machine, env| machine.release(hold, &Finish::Release, || confirm.take(), env));
        if let (Some(outcome), Some(confirm)) = (known, confirm) {
            let _ = confirm.send(outcome);
        }
        confirmed
    }

    fn somebody_waits(&mut self) {
        self.step(Machine::on_waited_for);
    }

    fn hinted(&mut self, token: &str) {
        self.step(|machine, env| machine.on_hint(token, false, env));
    }

    fn check(&mut self, hold: &Arc<Hold>) -> Confirmed {
        let (confirm, confirmed) = oneshot::channel();
        self.step(|machine, env| machine.want(hold, Wants::Check, confirm, env));
        confirmed
    }

    fn extend(&mut self, hold: &Arc<Hold>, ttl: Duration) -> Confirmed {
        let (confirm, confirmed) = oneshot::channel();
        self.step(|machine, env| machine.want(hold, Wants::Extend(ttl), confirm, env));
        confirmed
    }

    fn downgrade(&mut self, hold: &Arc<Hold>) -> Confirmed {
        let (confirm, confirmed) = oneshot::channel();
        self.step(|machine, env| machine.want(hold, Wants::Downgrade, confirm, env));
        confirmed
    }

    /// Answers the question after a round trip.
    pub(crate) fn answer(&mut self, question: &Question, outcome: Outcome) {
        self.now += RTT;
        self.settle(question, outcome);
    }

    /// Answers the question now.
    fn settle(&mut self, question: &Question, outcome: Outcome) {
        self.step(|machine, env| machine.on_outcome(question.number, outcome, env));
    }

    /// Acquires for `id` and returns the hold.
    pub(crate) fn hold(&mut self, id: u64, demand: Demand) -> Arc<Hold> {
        self.ask(id, demand);
        let question = self.asked();
        self.answer(&question, got());
        self.granted().1
    }

    /// Another holder has the lock, as `answer` says; the first waiter has asked for a place.
    fn contend(&mut self, id: u64, demand: Demand, answer: Outcome) {
        self.ask(id, demand);
        let take = self.asked();
        self.answer(&take, busy_unknown());
        let acquire = self.asked();
        self.answer(&acquire, answer);
    }

    /// All questions since the last look.
    fn questions(&mut self) -> Vec<Question> {
        let is_question = |out: &mut Outgoing| matches!(out, Outgoing::Ask(_));
        let asked = self.effects.out.extract_if(.., is_question);
        asked.filter_map(|out| if let Outgoing::Ask(it) = out { Some(it) } else { None }).collect()
    }

    /// The only question since the last look.
    pub(crate) fn asked(&mut self) -> Question {
        let mut asked = self.questions();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    }

    /// The releases since the last look.
    pub(crate) fn parted(&mut self) -> Vec<Parted> {
        let is_release = |out: &mut Outgoing| matches!(out, Outgoing::Part(_));
        let parted = self.effects.out.extract_if(.., is_release);
        parted
            .filter_map(
                |out| if let Outgoing::Part(it) = out { Some(Parted(Some(it))) } else { None },
            )
            .collect()
    }

    /// The only release since the last look.
    pub(crate) fn released(&mut self) -> Parted {
        let mut parted = self.parted();
        assert_eq!(parted.len(), 1, "{:?}", self.effects);
        parted.remove(0)
    }

    fn grants(&mut self) -> Vec<(u64, Arc<Hold>)> {
        let is_grant = |later: &mut Later<u64>| matches!(later, Later::Grant(..));
        let granted = self.effects.later.extract_if(.., is_grant);
        granted
            .filter_map(
                |later| if let Later::Grant(id, it) = later { Some((id, it)) } else { None },
            )
            .collect()
    }

    /// The only grant since the last look.
    fn granted(&mut self) -> (u64, Arc<Hold>) {
        let mut granted = self.grants();
        assert_eq!(granted.len(), 1, "{granted:?}");
        granted.remove(0)
    }

    fn failed(&mut self) -> Vec<(u64, LockError)> {
        let is_failure = |later: &mut Later<u64>| matches!(later, Later::Fail(..));
        let failed = self.effects.later.extract_if(.., is_failure);
        failed
            .filter_map(
                |later| if let Later::Fail(id, it) = later { Some((id, *it)) } else { None },
            )
            .collect()
    }

    /// Whether nothing is to be sent, granted or refused.
    fn is_silent(&self) -> bool {
        let tells = |later: &Later<u64>| matches!(later, Later::Grant(..) | Later::Fail(..));
        self.effects.out.is_empty() && !self.effects.later.iter().any(tells)
    }
}

/// A release, given up at the end of the test.
pub(crate) struct Parted(Option<Box<Reap>>);

impl Parted {
    pub(crate) fn take(mut self) -> Box<Reap> {
        self.0.take().expect("it was not taken before")
    }

    fn verb(&self, now: Moment) -> Verb {
        self.command(now).verb
    }

    /// Whether it tells the server that a client is likely to wait.
    fn says_waited_for(&self) -> bool {
        matches!(self.verb(Moment::START), Verb::Release { waited_for: true, .. })
    }

    /// For how long acquisitions of the token that come later are refused.
    pub(crate) fn tombstone(&self, now: Moment) -> Option<Duration> {
        match self.verb(now) {
            Verb::Release { tombstone, .. } => tombstone,
            other => panic!("{other:?}"),
        }
    }

    /// The outcome of a try, and what its caller learns from it.
    fn outcome(&mut self, outcome: Outcome, sent: Moment, now: Moment) -> Option<Confirmation> {
        let reap = self.0.take().expect("it is not done");
        let (confirmation, next) = reap.outcome(outcome, sent, now);
        if let Next::Again(_, reap) = next {
            self.0 = Some(reap);
        }
        confirmation
    }

    fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for Parted {
    type Target = Reap;

    fn deref(&self) -> &Reap {
        self.0.as_ref().expect("it is not done")
    }
}

impl DerefMut for Parted {
    fn deref_mut(&mut self) -> &mut Reap {
        self.0.as_mut().expect("it is not done")
    }
}

impl Drop for Parted {
    fn drop(&mut self) {
        if let Some(reap) = self.0.take() {
            reap.give_up();
        }
    }
}

/// Receives the outcome that the machine reports to a caller.
pub(crate) type Confirmed = oneshot::Receiver<Result<(), LockError>>;

/// The outcome that was reported, if any.
fn outcome_of(confirmed: &mut Confirmed) -> Option<Result<(), LockError>> {
    confirmed.try_recv().ok()
}

pub(crate) fn got() -> Outcome {
    Outcome::Answered(Answer::Held { fence: None, slot: None })
}

fn done() -> Outcome {
    Outcome::Answered(Answer::Done)
}

fn freed() -> Outcome {
    Outcome::Answered(Answer::Freed)
}

fn gone() -> Outcome {
    Outcome::Answered(Answer::Gone { by: None, because: None })
}

fn busy_unknown() -> Outcome {
    Outcome::Answered(Answer::Busy(Blocker::unknown()))
}

/// Another holder has it, and we have a place in the queue.
fn busy_with(ttl: Option<Duration>) -> Outcome {
    let value = Some(Token::fresh("other", "them").wire().to_string());
    Outcome::Answered(Answer::Busy(Blocker { value, ttl, queued: true, ..Blocker::unknown() }))
}

fn unknown() -> Outcome {
    Outcome::Unknown(Fault::new(FaultClass::Unknown, "planted"))
}

fn refused() -> Outcome {
    Outcome::Refused(Fault::new(FaultClass::Refused, "planted"))
}

fn impatient() -> Demand {
    demand("k").with(|terms| terms.wait = Wait::None)
}

fn patient(limit: u64) -> Demand {
    demand("k").with(|terms| terms.wait = Wait::For(Duration::from_millis(limit)))
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a step reports to subscribers, if it does.
fn observed(later: &Later<u64>) -> Option<&Observation> {
    if let Later::Observe(observation) = later { Some(observation) } else { None }
}
