//! One command as transactions execute it, a round trip at a time and without I/O. In the simulation
//! anything may happen between two of them.

use std::sync::Arc;

use redis::{Arg, Cmd, ServerError, Value};

use super::plan::{DecisionTerms, NextStep, Planned, decide};
use super::snapshot::{ReadPlan, Snapshot};
use crate::domain::fault::{Fault, FaultClass};
use crate::store::redis::decode;
use crate::store::redis::dialect::Dialect;
use crate::store::{Answer, Command, Verb};

/// A command, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct TransactionSteps {
    pub(crate) command: Command,
    terms: DecisionTerms,
    plan: Option<ReadPlan>,
    snapshot: Option<Snapshot>,
    written: Option<Written>,
}

/// What was written last.
#[derive(Clone, Debug)]
struct Written {
    /// The answer if it is executed.
    answer: Answer,
    /// Of each of its commands that write, whether it is about the lock's own key. Messages follow.
    are_of_lock: Vec<bool>,
}

impl TransactionSteps {
    /// `channel` is that of the manager whose command it is; `-` when it is not subscribed.
    pub(in crate::store::redis) fn new(
        command: Command,
        channel: Arc<str>,
        dialect: Dialect,
        may_publish: bool,
    ) -> Self {
        let listeners = [].into();
        let terms = DecisionTerms { dialect, channel, listeners, frugal: false, may_publish };
        Self { command, terms, plan: None, snapshot: None, written: None }
    }

    /// Whether messages may be published, as far as is known.
    pub(super) fn may_publish(&self) -> bool {
        self.terms.may_publish
    }

    /// The keys that are watched, and the commands that read them.
    pub(crate) fn begin(&mut self) -> (Vec<String>, Vec<Cmd>) {
        let plan = self.plan.insert(ReadPlan::of(&self.command));
        let reads = plan.reads(&self.command.names, self.terms.dialect);
        (plan.watch.clone(), reads)
    }

    /// Decides what to write from the answers to the first round trip: those to `WATCH`, which is not sent
    /// where nothing is watched, to what reads, and to `MULTI`. After a fault the connection may be in any
    /// state.
    pub(crate) fn read(&mut self, answers: Vec<Value>) -> Result<NextStep, Fault> {
        let Some(plan) = &self.plan else { return Ok(NextStep::Again) };
        let mut answers = opened(!plan.watch.is_empty(), answers)?;
        self.snapshot = Some(Snapshot::read(plan, self.terms.dialect, &mut answers)?);
        Ok(self.decide())
    }

    /// Whether channels have subscribers.
    pub(crate) fn hear(&mut self, heard: impl IntoIterator<Item = (String, bool)>) -> NextStep {
        self.terms.listeners.extend(heard);
        self.decide()
    }

    fn decide(&mut self) -> NextStep {
        let (Some(plan), Some(snapshot)) = (&self.plan, &self.snapshot) else {
            return NextStep::Again;
        };
        let Planned { answer, writes, messages } =
            match decide(&self.command, snapshot, &self.terms) {
                Ok(planned) => planned,
                Err(next) => return next,
            };
        if plan.watch.is_empty() || writes.is_empty() && !relies_on_lock(&answer) {
            return NextStep::Done(Ok(answer));
        }
        let lock = self.command.names.main();
        let are_of_lock: Vec<_> = writes.iter().map(|write| is_of(lock, write)).collect();
        self.written = Some(Written { answer, are_of_lock });
        // Without writes there is no news, and `EXEC` only says whether what was read still stands.
        let publishes = self.terms.may_publish && !writes.is_empty();
        let messages = messages.into_iter().filter(|_| publishes);
        NextStep::Write(writes.into_iter().chain(messages).collect())
    }

    /// Reads the answers to the second round trip. After a fault the connection may be in any state.
    pub(crate) fn executed(&mut self, answers: Vec<Value>) -> Result<NextStep, Fault> {
        let Some(Written { answer, are_of_lock }) = self.written.take() else {
            return Ok(NextStep::Again);
        };
        Ok(match executed(answers, &are_of_lock) {
            Executed::Done(failed) => NextStep::Done(failed.map_or(Ok(answer), Err)),
            Executed::Aborted => NextStep::Aborted,
            Executed::Refused(at, _) if at >= are_of_lock.len() => {
                self.terms.may_publish = false;
                NextStep::Again
            }
            Executed::Refused(_, error)
                if decode::code_of(&error) == "OOM" && !self.terms.frugal =>
            {
                self.terms.frugal = true;
                NextStep::Again
            }
            Executed::Refused(_, error) => NextStep::Done(Err(decode::refusal(&error))),
            Executed::Unclear(fault) => return Err(fault),
        })
    }

    /// What asks why a lock is gone, where its transaction did not read that.
    pub(crate) fn asks_why(&self, answer: &Answer) -> Option<Cmd> {
        let reads_reason = !matches!(
            self.command.verb,
            Verb::Release { tombstone: None, .. }
                | Verb::Renew { .. }
                | Verb::Keep { .. }
                | Verb::Check { .. }
        );
        let why = decode::ask_why(&self.command, answer).filter(|_| !reads_reason)?;
        Some(self.terms.dialect.value(&why.names.tombstone(why.verb.token()?)))
    }

    /// The answer as the caller gets it, with the reason.
    pub(crate) fn explained(answer: Answer, reason: &Value) -> Answer {
        decode::why(answer, reason)
    }
}

/// Whether an answer says that the token has the lock. Several commands read it, and the lock may have
/// passed to another token between them. So the watch must be checked although nothing is written.
fn relies_on_lock(answer: &Answer) -> bool {
    matches!(answer, Answer::Held { .. } | Answer::Renewed { .. } | Answer::Done)
}

#[cfg(test)]
impl TransactionSteps {
    /// A command as the simulation executes it.
    pub(crate) fn simulated(command: Command, channel: Arc<str>) -> Self {
        Self::new(command, channel, Dialect::Values, true)
    }

    /// The answer if the key has a value of another type.
    pub(crate) fn of_another_type() -> NextStep {
        NextStep::Done(Err(decode::other_kind(None)))
    }

    /// What a message says.
    pub(crate) fn event_of(text: &str) -> Option<crate::store::Event> {
        crate::store::redis::listen::read(text)
    }
}

/// The answers to the reads of the first round trip, if it opened a transaction.
fn opened(watches: bool, mut answers: Vec<Value>) -> Result<impl Iterator<Item = Value>, Fault> {
    if watches {
        for answer in [answers.pop(), answers.first().cloned()] {
            match answer {
                Some(Value::Okay) => {}
                Some(Value::ServerError(error)) => return Err(decode::refusal(&error)),
                other => return Err(unexpected(other.as_ref())),
            }
        }
    }
    Ok(answers.into_iter().skip(usize::from(watches)))
}

fn unexpected(value: Option<&Value>) -> Fault {
    let value: String = format!("{value:?}").chars().take(80).collect();
    Fault::new(FaultClass::Unknown, format!("a transaction was answered by {value}"))
}

/// What became of the second round trip.
enum Executed {
    /// It was executed, except for one command that may have failed.
    Done(Option<Fault>),
    /// The values had changed after the read. Nothing was written, or nothing of the lock
    /// itself.
    Aborted,
    /// Nothing was written, because this command was refused.
    Refused(usize, ServerError),
    /// The connection may be in any state.
    Unclear(Fault),
}

/// Whether a command writes to the lock's own key.
fn is_of(lock: &str, write: &Cmd) -> bool {
    write.args_iter().nth(1) == Some(Arg::Simple(lock.as_bytes()))
}

/// Reads the answers to the writes and the `EXEC`. For each write, `are_of_lock` says whether it is one
/// to the lock's own key.
///
/// Every such write changes what was read there. A write that finds nothing means that the lock has
/// ended since: servers before Redis 6.0.9 execute a transaction although a watched key has expired.
fn executed(mut answers: Vec<Value>, are_of_lock: &[bool]) -> Executed {
    let executed = answers.pop();
    let count = answers.len();
    let problem = answers.into_iter().enumerate().find_map(|(at, answer)| match answer {
        Value::ServerError(error) => Some((at, error)),
        _ => None,
    });
    match (executed, problem) {
        (Some(Value::Array(results)), None) if results.len() != count => {
            Executed::Unclear(unexpected(Some(&Value::Array(results))))
        }
        (Some(Value::Array(results)), None) if found_nothing(&results, are_of_lock) => {
            Executed::Aborted
        }
        (Some(Value::Array(results)), None) => Executed::Done(results.iter().find_map(failed)),
        (Some(Value::Nil), None) => Executed::Aborted,
        (Some(Value::ServerError(_)), Some((at, error))) => Executed::Refused(at, error),
        // Before Redis 6.0 a replica executes a transaction without the commands that it has refused.
        (Some(Value::Array(results)), Some((at, error))) if results.is_empty() => {
            Executed::Refused(at, error)
        }
        (Some(Value::Array(_)), Some((_, error))) => {
            let fault = decode::refusal(&error);
            Executed::Unclear(Fault { class: FaultClass::Unknown, ..fault })
        }
        (Some(Value::ServerError(error)), None) => Executed::Unclear(decode::refusal(&error)),
        (other, _) => Executed::Unclear(unexpected(other.as_ref())),
    }
}

/// Whether a write to the lock's own key had no effect.
fn found_nothing(results: &[Value], are_of_lock: &[bool]) -> bool {
    if planted!(NothingFoundIsDone) {
        return false;
    }
    let of_lock = results.iter().zip(are_of_lock).filter(|(_, is_of_lock)| **is_of_lock);
    of_lock.into_iter().any(|(result, _)| matches!(result, Value::Int(0) | Value::Nil))
}

/// The failure of one command of a transaction whose other commands were executed.
fn failed(result: &Value) -> Option<Fault> {
    match result {
        Value::ServerError(error) => {
            let fault = decode::refusal(error);
            Some(Fault { class: FaultClass::Unknown, ..fault })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_without_the_commands_that_were_refused_is_no_success() {
        let refused = || redis::parse_redis_value(b"-READONLY You can't write\r\n").unwrap();
        let queued = || Value::SimpleString("QUEUED".into());
        let none = executed(vec![refused(), Value::Array(Vec::new())], &[true]);
        assert!(matches!(none, Executed::Refused(0, _)));
        let results = Value::Array(vec![Value::Int(1)]);
        let Executed::Unclear(some) = executed(vec![queued(), refused(), results], &[true, false])
        else {
            panic!("a part was executed")
        };
        assert!(some.class == FaultClass::Unknown && some.what.contains("READONLY"), "{some:?}");
    }
}
