//! Renewals, many in one transaction.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::plan::{Decision, ReadPlan, decide};
use super::pool::lost;
use super::run::{Setting, Written, begin, late, opened, run, write};
use super::snapshot::Snapshot;
use crate::domain::error::Fault;
use crate::store::redis::{decode, encode};
use crate::store::{Answer, Command, Verb};

/// So many are renewed in one transaction.
pub(super) const MOST: usize = 64;

/// What each command, by its number, came to.
pub(super) type Answers = Vec<(u64, Result<Answer, Fault>)>;

/// Whether a command is a renewal that can go with others.
pub(super) fn is_one(command: &Command) -> bool {
    matches!(command.verb, Verb::Renew { .. })
}

/// Renews all of them in one transaction; one by one when somebody changes one of the keys meanwhile.
pub(super) async fn renew(setting: &Setting, batch: Vec<(u64, Command)>) -> Answers {
    if let [(seq, command)] = batch.as_slice() {
        return vec![(*seq, run(setting, command).await)];
    }
    let shortest = batch.iter().map(|(_, command)| command.timeout).min();
    let is_sent = AtomicBool::new(false);
    let limit = shortest.unwrap_or(Duration::ZERO);
    let together = timeout(limit, together(setting, &batch, &is_sent)).await;
    match together.unwrap_or_else(|_| Err(late(&is_sent))) {
        Ok(Some(answers)) => {
            let numbers = batch.iter().map(|(seq, _)| *seq);
            numbers.zip(answers.into_iter().map(Ok)).collect()
        }
        Ok(None) => {
            let mut answers = Vec::with_capacity(batch.len());
            for (seq, command) in &batch {
                answers.push((*seq, run(setting, command).await));
            }
            answers
        }
        Err(fault) => batch.iter().map(|(seq, _)| (*seq, Err(fault.clone()))).collect(),
    }
}

/// The answers; none when the transaction was aborted.
async fn together(
    setting: &Setting,
    batch: &[(u64, Command)],
    is_sent: &AtomicBool,
) -> Result<Option<Vec<Answer>>, Fault> {
    let mut terms = setting.terms();
    let plans: Vec<_> = batch
        .iter()
        .map(|(_, command)| ReadPlan { tombs: Vec::new(), ..ReadPlan::of(command, terms.dialect) })
        .collect();
    let watch: Vec<String> = plans.iter().flat_map(|plan| plan.watch.iter().cloned()).collect();
    let reads = plans.iter().zip(batch);
    let reads = reads
        .flat_map(|(plan, (_, command))| plan.scope.reads(&command.names, &[], terms.dialect))
        .collect();
    let mut leased = setting.pool.lease().await?;
    let answers = match leased.ask(begin(&watch, reads)).await {
        Ok(answers) => answers,
        // It was closed while nobody used it.
        Err(_) if leased.is_used => return Ok(None),
        Err(error) => return Err(lost(&error)),
    };
    let mut answers = opened(true, answers)?;
    let (mut renewed, mut writes) = (Vec::with_capacity(batch.len()), Vec::new());
    for (plan, (_, command)) in plans.iter().zip(batch) {
        let snapshot = Snapshot::read(plan.scope, &[], terms.dialect, &mut answers)?;
        match decide(command, &snapshot, &terms) {
            Decision::Write { answer, writes: own, .. } => {
                renewed.push(answer);
                writes.extend(own);
            }
            Decision::Refuse(fault) => return Err(fault),
            // A renewal tells nobody and looks at nothing else.
            Decision::AskListeners(_) | Decision::AskType => return Ok(None),
        }
    }
    match write(setting, leased, writes, Vec::new(), &mut terms, is_sent).await? {
        Written::Done => {}
        Written::Aborted | Written::Otherwise => return Ok(None),
    }
    for (answer, (_, command)) in renewed.iter_mut().zip(batch) {
        explain(setting, command, answer).await;
    }
    Ok(Some(renewed))
}

/// Adds why a lock is gone, where somebody left the reason.
async fn explain(setting: &Setting, command: &Command, answer: &mut Answer) {
    let Some(why) = decode::asks_why(command, answer) else { return };
    let Some(token) = why.verb.token() else { return };
    // Without it the answer is true as well.
    let reason = setting.pool.ask_beside(vec![encode::why(&why, token)]).await;
    let reason = reason.ok().and_then(|mut reasons| reasons.pop()).unwrap_or(Value::Nil);
    let gone = std::mem::replace(answer, Answer::Done);
    *answer = decode::why(gone, &reason);
}
