//! Mutexes on servers where scripts can't be used: transactions under `WATCH`.
//!
//! What a script does in one step takes two round trips here, on a connection that serves one
//! command at a time:
//!
//! ```text
//!   WATCH keys, read them, MULTI  -->  the model decides  -->  what it changed, EXEC
//!                 ^                                                      |
//!                 +---------------- somebody changed a key --------------+
//! ```
//!
//! Keys and values are those of the scripts, so clients with and without scripts share a lock. The
//! decisions are those of the model, which is also the store in memory; this module reads the state
//! from the server and writes the changes back. Commands for one key run one after the other,
//! because connections have no common order.

mod plan;
mod pool;
#[cfg(test)]
mod run_tests;
mod snapshot;
mod steps;
mod wire;
#[cfg(test)]
mod wire_tests;
mod writes;

pub(crate) use plan::NextStep;
pub(super) use pool::{Pool, self_test};
pub(crate) use steps::TransactionSteps;
#[cfg(test)]
pub(crate) use wire::Sequence;
pub(super) use wire::wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Value};
use tokio::time::{sleep, timeout};

use super::conversation::notice_repair;
use super::decode;
use super::dialect::{Dialect, words};
use super::listen::Channel;
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Answer, Command, Verb};
use plan::pause;
use pool::{Leased, lost};

/// What transactions need of their connection.
pub(super) struct Setting {
    pub(super) pool: Arc<Pool>,
    pub(super) dialect: Dialect,
    pub(super) channel: Channel,
}

/// Executes a command within its time limit. The caller ensures that no other command of the same
/// key runs until then.
pub(super) async fn run(setting: &Setting, command: &Command) -> Result<Answer, Fault> {
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
        let what = "the server did not report the outcome of a transaction in time";
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
    let Setting { pool, dialect, channel } = setting;
    let may_publish = pool.may_publish.load(Ordering::Relaxed);
    let channel = channel.plain_name();
    let mut steps = TransactionSteps::new(command.clone(), channel, *dialect, may_publish);
    let mut aborts = 0;
    loop {
        let leased = pool.lease(pool.lane(command)).await?;
        is_sent.store(false, Ordering::Relaxed);
        match attempt(pool, &mut steps, leased, is_sent).await? {
            NextStep::Done(answer) => {
                let answer = answer?;
                notice_repair(command, &answer);
                return Ok(explain(pool, &steps, answer).await);
            }
            NextStep::Aborted => {
                aborts += 1;
                sleep(pause(aborts, crate::domain::env::unique().as_bytes()[0])).await;
            }
            _ if !steps.may_publish() => pool.may_publish.store(false, Ordering::Relaxed),
            _ => {}
        }
    }
}

/// One transaction. What it comes to is no step that is left to do.
async fn attempt(
    pool: &Arc<Pool>,
    steps: &mut TransactionSteps,
    mut leased: Leased<'_>,
    is_sent: &AtomicBool,
) -> Result<NextStep, Fault> {
    let (watch, reads) = steps.begin();
    let is_open = !watch.is_empty();
    let answers = match leased.ask(begin(&watch, reads)).await {
        // The connection was closed while it was idle.
        Err(_) if leased.is_used => return Ok(NextStep::Again),
        answers => answers.map_err(|error| lost(&error))?,
    };
    let mut next = steps.read(answers)?;
    while let NextStep::AskListeners(channels) = next {
        next = steps.hear(ask_listeners(pool, channels).await?);
    }
    match next {
        NextStep::Write(mut cmds) => {
            cmds.push(redis::cmd("EXEC"));
            is_sent.store(true, Ordering::Relaxed);
            let next = steps.executed(leased.ask(cmds).await.map_err(decode::broken)?)?;
            leased.give_back();
            Ok(next)
        }
        NextStep::AskType(now) => {
            discard(leased, is_open).await;
            Ok(NextStep::Done(ask_type(pool, &steps.command, now).await))
        }
        next => {
            discard(leased, is_open).await;
            Ok(next)
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

/// Ends the transaction without writing, and unwatches the keys.
async fn discard(mut leased: Leased<'_>, is_open: bool) {
    if !is_open
        || matches!(leased.ask(vec![redis::cmd("DISCARD")]).await.as_deref(), Ok([Value::Okay]))
    {
        leased.give_back();
    }
}

/// Whether these channels have subscribers. When that can't be asked, it is assumed.
async fn ask_listeners(
    pool: &Arc<Pool>,
    channels: Vec<String>,
) -> Result<impl Iterator<Item = (String, bool)> + use<>, Fault> {
    let mut counts = Vec::new();
    if pool.may_ask_listeners.load(Ordering::Relaxed) {
        let mut cmd = redis::cmd("PUBSUB");
        cmd.arg("NUMSUB").arg(&channels);
        match pool.ask_beside(vec![cmd]).await?.pop() {
            Some(Value::ServerError(_)) | None => {
                pool.may_ask_listeners.store(false, Ordering::Relaxed);
            }
            Some(value) => {
                counts = redis::from_redis_value::<Vec<(String, i64)>>(value).unwrap_or_default();
            }
        }
    }
    Ok(channels.into_iter().map(move |channel| {
        let count = counts.iter().find(|(name, _)| *name == channel).map_or(1, |(_, count)| *count);
        (channel, count > 0)
    }))
}

/// Finds out the type of a key that has no string.
async fn ask_type(pool: &Arc<Pool>, command: &Command, now: Moment) -> Result<Answer, Fault> {
    let key = command.names.main();
    let mut range = words(["ZRANGE", key]);
    let last = if matches!(command.verb, Verb::Look) { -1 } else { 0 };
    range.arg(0).arg(last).arg("WITHSCORES");
    let mut answers = pool.ask_beside(vec![range, words(["TYPE", key])]).await?;
    let (kind, members) = (answers.pop(), answers.pop());
    let is_set = matches!(members, Some(Value::Array(_)));
    if let (Verb::Look, Some(members)) = (&command.verb, members.clone()) {
        return Ok(snapshot::seen_members(members, now));
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

/// Adds why a lock is gone, where a reason was left.
async fn explain(pool: &Arc<Pool>, steps: &TransactionSteps, answer: Answer) -> Answer {
    let Some(why) = steps.asks_why(&answer) else { return answer };
    // The answer is right without the reason as well.
    let reason = pool.ask_beside(vec![why]).await.ok().and_then(|mut reasons| reasons.pop());
    TransactionSteps::explained(answer, &reason.unwrap_or(Value::Nil))
}
