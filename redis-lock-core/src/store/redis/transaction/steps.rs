//! One command as transactions execute it, a round trip at a time: for the simulation, which lets
//! anything happen between two of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redis::{Cmd, Value};

use super::plan::{Decision, DecisionTerms, ReadPlan, decide};
use super::run::Written;
use super::run::{after, executed, has_no_reason, is_of, opened, relies_on_lock};
use super::snapshot::Snapshot;
use super::writes::Message;
use crate::domain::error::Fault;
use crate::store::redis::dialect::Dialect;
use crate::store::redis::{decode, encode, listen};
use crate::store::{Answer, Command, Event};

/// A command, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct TransactionSteps {
    pub(crate) command: Command,
    terms: DecisionTerms,
    plan: Option<ReadPlan>,
    /// The answer if what was written last is executed, how many of its commands write, and which of
    /// these are about the lock's own key.
    written: Option<(Answer, usize, Vec<bool>)>,
}

/// What follows from an answer.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Send this; an `EXEC` comes behind it.
    Write(Vec<Cmd>),
    /// It begins anew.
    Again,
    Done(Result<Answer, Fault>),
}

impl TransactionSteps {
    /// `channel` is that of the manager whose command it is; `-` when it is not subscribed.
    pub(crate) fn new(command: Command, channel: Arc<str>) -> Self {
        let listeners = [].into();
        let terms = DecisionTerms { dialect: Dialect::Millis, channel, listeners, frugal: false };
        Self { command, terms, plan: None, written: None }
    }

    /// The keys that are watched, and the commands that read them.
    pub(crate) fn begin(&mut self) -> (Vec<String>, Vec<Cmd>) {
        let plan = self.plan.insert(ReadPlan::of(&self.command, &self.terms));
        let reads = plan.scope.reads(&self.command.names, &plan.tombstones, self.terms.dialect);
        (plan.watch.clone(), reads)
    }

    /// Decides what to write from the answers to the first round trip: those to `WATCH`, which is not sent
    /// where nothing is watched, to what reads, and to `MULTI`. `listens` says whether a channel has a
    /// subscriber.
    pub(crate) fn decide(
        &mut self,
        answers: Vec<Value>,
        listens: &mut dyn FnMut(&str) -> bool,
    ) -> NextStep {
        self.decided(answers, listens).unwrap_or_else(|fault| NextStep::Done(Err(fault)))
    }

    fn decided(
        &mut self,
        answers: Vec<Value>,
        listens: &mut dyn FnMut(&str) -> bool,
    ) -> Result<NextStep, Fault> {
        let Some(plan) = self.plan.take() else { return Ok(NextStep::Again) };
        let watches = !plan.watch.is_empty();
        let mut answers = opened(watches, answers)?;
        let (scope, tombstones) = (plan.scope, &plan.tombstones);
        let snapshot = Snapshot::read(scope, tombstones, self.terms.dialect, &mut answers)?;
        loop {
            match decide(&self.command, &snapshot, &self.terms) {
                Decision::Write { answer, writes, messages } => {
                    if !watches || writes.is_empty() && !relies_on_lock(&answer) {
                        return Ok(NextStep::Done(Ok(answer)));
                    }
                    let lock = self.command.names.main();
                    let are_of_lock: Vec<_> = writes.iter().map(|it| is_of(lock, it)).collect();
                    self.written = Some((answer, writes.len(), are_of_lock));
                    let messages = if writes.is_empty() { Vec::new() } else { messages };
                    let publish = messages.iter().map(Message::publish);
                    return Ok(NextStep::Write(writes.into_iter().chain(publish).collect()));
                }
                Decision::Refuse(fault) => return Err(fault),
                Decision::AskListeners(channels) => {
                    for channel in channels {
                        let heard = listens(&channel);
                        self.terms.listeners.insert(channel, heard);
                    }
                }
                Decision::AskType => return Err(decode::other_kind(None)),
            }
        }
    }

    /// Reads the answers to the second round trip.
    pub(crate) fn executed(&mut self, answers: Vec<Value>) -> NextStep {
        let Some((answer, writes, are_of_lock)) = self.written.take() else {
            return NextStep::Again;
        };
        let executed = executed(answers, &are_of_lock);
        match after(executed, writes, &AtomicBool::new(true), &mut self.terms) {
            Ok(Written::Done) => NextStep::Done(Ok(answer)),
            Ok(Written::Aborted | Written::Otherwise) => NextStep::Again,
            Err(fault) => NextStep::Done(Err(fault)),
        }
    }

    /// The answer as the caller gets it, with why a lock is gone; `ask` sends a command.
    pub(crate) fn explained(&self, mut answer: Answer, ask: impl FnOnce(Cmd) -> Value) -> Answer {
        if has_no_reason(&self.command.verb)
            && let Some(why) = decode::ask_why(&self.command, &answer)
            && let Some(token) = why.verb.token()
        {
            let reason = ask(encode::why(&why, token));
            answer = decode::why(answer, &reason);
        }
        answer
    }

    /// What a message says.
    pub(crate) fn event_of(text: &str) -> Option<Event> {
        listen::read(text)
    }
}
