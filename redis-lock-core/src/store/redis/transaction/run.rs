//! Executes one command, with as many transactions as it takes.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Arg, Cmd, ServerError, Value};
use tokio::time::{sleep, timeout};

use super::look;
use super::plan::{Decision, DecisionTerms, ReadPlan, decide, pause};
use super::pool::{Lane, Leased, lost};
use super::setting::Setting;
use super::snapshot::Snapshot;
use super::writes::Message;
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::redis::{decode, encode};
use crate::store::{Acquire, Answer, Command, Verb};

/// The outcome of one transaction.
enum TransactionResult {
    Done(Answer),
    /// What was read has changed meanwhile.
    Aborted,
    /// It was not executed, and has to be tried in another way.
    Otherwise,
}

/// Executes a command within its time limit. The caller ensures that no other command of the same
/// key runs meanwhile.
pub(in crate::store::redis) async fn run(
    setting: &Setting,
    command: &Command,
) -> Result<Answer, Fault> {
    let (is_sent, begun) = (AtomicBool::new(false), Moment::now());
    let bounded = timeout(command.timeout, attempts(setting, command, &is_sent));
    bounded.await.unwrap_or_else(|_| Err(late(setting, begun, &is_sent)))
}

/// The fault of a transaction that took too long.
fn late(setting: &Setting, begun: Moment, is_sent: &AtomicBool) -> Fault {
    // Its connection is closed by now. Another one is made at once, so that the next try need not
    // wait for it.
    setting.pool.distrust(begun);
    if is_sent.load(Ordering::Relaxed) {
        let what = "the server did not say in time what became of a transaction";
        return Fault::new(FaultClass::Unknown, what).of(BackendErrorKind::TimedOut);
    }
    let what = "no transaction succeeded in time: other clients changed the lock's keys again and \
                again, or the server was too slow";
    Fault::new(FaultClass::Refused, what).of(BackendErrorKind::TimedOut)
}

async fn attempts(
    setting: &Setting,
    command: &Command,
    is_sent: &AtomicBool,
) -> Result<Answer, Fault> {
    let mut terms = setting.terms();
    let mut aborts = 0;
    loop {
        let leased = setting.pool.lease(Lane::of(command)).await?;
        let is_used = leased.is_used;
        is_sent.store(false, Ordering::Relaxed);
        match attempt(setting, command, leased, &mut terms, is_sent).await {
            Ok(TransactionResult::Done(mut answer)) => {
                notice(command, &answer);
                if has_no_reason(&command.verb) {
                    explain(setting, command, &mut answer).await;
                }
                return Ok(answer);
            }
            Ok(TransactionResult::Aborted) => {
                aborts += 1;
                sleep(pause(aborts, crate::domain::env::unique().as_bytes()[0])).await;
            }
            Ok(TransactionResult::Otherwise) => {}
            // The connection was closed while it was idle.
            Err(Failure::Broken(_)) if is_used => {}
            Err(Failure::Broken(fault) | Failure::Fault(fault)) => return Err(fault),
        }
    }
}

/// Why a transaction can't go on.
enum Failure {
    /// The connection ended before anything was written.
    Broken(Fault),
    Fault(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

async fn attempt(
    setting: &Setting,
    command: &Command,
    mut leased: Leased<'_>,
    terms: &mut DecisionTerms,
    is_sent: &AtomicBool,
) -> Result<TransactionResult, Failure> {
    let plan = ReadPlan::of(command, terms);
    let begin =
        begin(&plan.watch, plan.scope.reads(&command.names, &plan.tombstones, terms.dialect));
    let answers = leased.ask(begin).await.map_err(|error| Failure::Broken(lost(&error)))?;
    let mut answers = opened(!plan.watch.is_empty(), answers)?;
    let snapshot = Snapshot::read(plan.scope, &plan.tombstones, terms.dialect, &mut answers)?;
    loop {
        match decide(command, &snapshot, terms) {
            Decision::Write { answer, writes, messages } => {
                if plan.watch.is_empty() || writes.is_empty() && !relies_on_lock(&answer) {
                    discard(leased, !plan.watch.is_empty()).await;
                    return Ok(TransactionResult::Done(answer));
                }
                let lock = command.names.main();
                let written =
                    write(setting, leased, lock, writes, messages, terms, is_sent).await?;
                return Ok(match written {
                    Written::Done => TransactionResult::Done(answer),
                    Written::Aborted => TransactionResult::Aborted,
                    Written::Otherwise => TransactionResult::Otherwise,
                });
            }
            Decision::Refuse(fault) => {
                discard(leased, !plan.watch.is_empty()).await;
                return Err(fault.into());
            }
            Decision::AskListeners(channels) => ask_listeners(setting, channels, terms).await?,
            Decision::AskType => {
                discard(leased, !plan.watch.is_empty()).await;
                return Ok(TransactionResult::Done(ask_type(setting, command, &snapshot).await?));
            }
        }
    }
}

/// The first round trip. It includes `MULTI`, so that nothing is written unless that was accepted.
fn begin(watch: &[String], reads: Vec<Cmd>) -> Vec<Cmd> {
    if watch.is_empty() {
        return reads;
    }
    let mut cmds = Vec::with_capacity(reads.len() + 2);
    let mut watching = redis::cmd("WATCH");
    watching.arg(watch);
    cmds.push(watching);
    cmds.extend(reads);
    cmds.push(redis::cmd("MULTI"));
    cmds
}

/// The answers to the reads of the first round trip, if it opened a transaction.
pub(super) fn opened(
    watches: bool,
    mut answers: Vec<Value>,
) -> Result<impl Iterator<Item = Value>, Fault> {
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

/// Whether an answer says that the token has the lock. It was read in several commands, between which the
/// lock may have gone to another, so that the watch has to be asked although nothing is written.
pub(super) fn relies_on_lock(answer: &Answer) -> bool {
    matches!(answer, Answer::Held { .. } | Answer::Renewed { .. } | Answer::Done)
}

pub(super) enum Written {
    Done,
    Aborted,
    Otherwise,
}

/// The second round trip.
async fn write(
    setting: &Setting,
    mut leased: Leased<'_>,
    lock: &str,
    writes: Vec<Cmd>,
    messages: Vec<Message>,
    terms: &mut DecisionTerms,
    is_sent: &AtomicBool,
) -> Result<Written, Fault> {
    // Without writes there is no news, and `EXEC` only says whether what was read still stands.
    let messages = if writes.is_empty() { Vec::new() } else { messages };
    let first_message = writes.len();
    let are_of_lock: Vec<_> = writes.iter().map(|write| is_of(lock, write)).collect();
    let mut cmds = writes;
    if setting.pool.may_publish.load(Ordering::Relaxed) {
        cmds.extend(messages.iter().map(Message::publish));
    }
    cmds.push(redis::cmd("EXEC"));
    is_sent.store(true, Ordering::Relaxed);
    let executed = executed(leased.ask(cmds).await.map_err(decode::broken)?, &are_of_lock);
    if !matches!(executed, Executed::Unclear(_)) {
        leased.give_back();
    }
    after(executed, first_message, &setting.pool.may_publish, terms)
}

/// What follows from the second round trip.
pub(super) fn after(
    executed: Executed,
    first_message: usize,
    may_publish: &AtomicBool,
    terms: &mut DecisionTerms,
) -> Result<Written, Fault> {
    match executed {
        Executed::Done(failed) => failed.map_or(Ok(Written::Done), Err),
        Executed::Aborted => Ok(Written::Aborted),
        Executed::Refused(at, _) if at >= first_message => {
            may_publish.store(false, Ordering::Relaxed);
            Ok(Written::Otherwise)
        }
        Executed::Refused(_, error) => {
            if decode::code_of(&error) == "OOM" && !terms.frugal {
                terms.frugal = true;
                return Ok(Written::Otherwise);
            }
            Err(decode::refusal(&error))
        }
        Executed::Unclear(fault) => Err(fault),
    }
}

/// What became of the second round trip.
pub(super) enum Executed {
    /// It was executed, but for one command that may have failed.
    Done(Option<Fault>),
    /// What was read had changed. Nothing was written, or nothing of the lock itself.
    Aborted,
    /// Nothing was written, because this command was refused.
    Refused(usize, ServerError),
    /// The connection may be in any state.
    Unclear(Fault),
}

/// Whether a command writes to the lock's own key.
pub(super) fn is_of(lock: &str, write: &Cmd) -> bool {
    write.args_iter().nth(1) == Some(Arg::Simple(lock.as_bytes()))
}

/// Reads the answers to the writes and the `EXEC`. For each write, `are_of_lock` says whether it is one
/// to the lock's own key.
///
/// Every such write changes what was read there, so one that finds nothing means that the lock has
/// ended since: servers before Redis 6.0.9 execute a transaction although a watched key has expired.
pub(super) fn executed(mut answers: Vec<Value>, are_of_lock: &[bool]) -> Executed {
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

/// Ends the transaction without writing, and unwatches the keys.
async fn discard(mut leased: Leased<'_>, is_open: bool) {
    if !is_open
        || matches!(leased.ask(vec![redis::cmd("DISCARD")]).await.as_deref(), Ok([Value::Okay]))
    {
        leased.give_back();
    }
}

async fn ask_listeners(
    setting: &Setting,
    channels: Vec<String>,
    terms: &mut DecisionTerms,
) -> Result<(), Fault> {
    let mut counts = Vec::new();
    if setting.pool.may_ask_listeners.load(Ordering::Relaxed) {
        let mut cmd = redis::cmd("PUBSUB");
        cmd.arg("NUMSUB").arg(&channels);
        match setting.pool.ask_beside(vec![cmd]).await?.pop() {
            Some(Value::ServerError(_)) | None => {
                setting.pool.may_ask_listeners.store(false, Ordering::Relaxed);
            }
            Some(value) => {
                counts = redis::from_redis_value::<Vec<(String, i64)>>(value).unwrap_or_default();
            }
        }
    }
    for channel in channels {
        // When this can't be asked, a subscriber is assumed.
        let count = counts.iter().find(|(name, _)| *name == channel).map_or(1, |(_, count)| *count);
        terms.listeners.insert(channel, count > 0);
    }
    Ok(())
}

/// Finds out the type of a key that has no string.
async fn ask_type(
    setting: &Setting,
    command: &Command,
    snapshot: &Snapshot,
) -> Result<Answer, Fault> {
    let key = command.names.main();
    let mut range = redis::cmd("ZRANGE");
    let last = if matches!(command.verb, Verb::Look) { -1 } else { 0 };
    range.arg(key).arg(0).arg(last).arg("WITHSCORES");
    let mut kind = redis::cmd("TYPE");
    kind.arg(key);
    let mut answers = setting.pool.ask_beside(vec![range, kind]).await?;
    let (kind, members) = (answers.pop(), answers.pop());
    let is_set = matches!(members, Some(Value::Array(_)));
    if let (Verb::Look, Some(members)) = (&command.verb, members.clone()) {
        return Ok(look::members(members, snapshot.now));
    }
    let first = members.filter(|_| is_set).and_then(|members| {
        redis::from_redis_value::<Vec<(String, f64)>>(members).ok()?.into_iter().next()
    });
    let mode = first.as_ref().and_then(|(member, _)| member.split_once(':'));
    let kind = match (mode, kind) {
        (Some((mode, _)), _) if Kind::of_mode(mode, 0).is_some() => mode.to_owned(),
        (_, Some(Value::SimpleString(kind))) => kind,
        _ => "value of another type".into(),
    };
    Err(decode::other_kind(Some(&kind)))
}

/// Whether a transaction doesn't read why a token has the lock no more.
pub(super) fn has_no_reason(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Release { tombstone: None, .. }
            | Verb::Renew { .. }
            | Verb::Keep { .. }
            | Verb::Check { .. }
    )
}

/// Adds why a lock is gone, where a reason was left.
async fn explain(setting: &Setting, command: &Command, answer: &mut Answer) {
    let Some(why) = decode::ask_why(command, answer) else { return };
    let Some(token) = why.verb.token() else { return };
    // The answer is right without the reason as well.
    let reason = setting.pool.ask_beside(vec![encode::why(&why, token)]).await;
    let reason = reason.ok().and_then(|mut reasons| reasons.pop()).unwrap_or(Value::Nil);
    let gone = std::mem::replace(answer, Answer::Done);
    *answer = decode::why(gone, &reason);
}

/// Tells operators what an acquisition found.
fn notice(command: &Command, answer: &Answer) {
    if let (Verb::Acquire(Acquire { repair_orphan, .. }), Answer::Busy(blocker)) =
        (&command.verb, answer)
        && blocker.repaired
    {
        let value = blocker.value.as_deref().unwrap_or_default();
        crate::observe::log::repaired(command.names.user_key(), value, *repair_orphan);
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
