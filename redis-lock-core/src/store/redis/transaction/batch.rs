//! Commands for many keys in one transaction: renewals, and releases of locks that nobody waits
//! for.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::timeout;

use super::plan::{Decision, DecisionTerms, ReadPlan, decide};
use super::pool::{Lane, SIZE, lost};
use super::run::{Written, begin, explain, late, opened, write};
use super::setting::Setting;
use super::snapshot::Snapshot;
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::store::{Answer, Command, Verb};

/// The most commands in one transaction. All of them are aborted when another client changes one of
/// their keys.
const MOST: usize = 64;

/// The outcome of each command, by its number.
pub(super) type Answers = Vec<(u64, Result<Answer, Fault>)>;

/// Which commands can be in one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BatchKind {
    Renewals,
    Releases,
}

impl BatchKind {
    pub(super) const EACH: [Self; 2] = [Self::Renewals, Self::Releases];

    /// The batch that a command can be part of. A lock that somebody waits for is released by
    /// itself, because its key changes often.
    pub(super) fn of(command: &Command) -> Option<Self> {
        match &command.verb {
            Verb::Renew { .. } => Some(Self::Renewals),
            Verb::Release { waited_for: false, keep: None, tombstone: None, .. } => {
                Some(Self::Releases)
            }
            _ => None,
        }
    }
}

/// Commands that wait until the transaction before them is done.
#[derive(Debug, Default)]
pub(super) struct WaitingBatch {
    waiting: Vec<(u64, Command)>,
    /// How many batches have no answer.
    under_way: usize,
}

impl WaitingBatch {
    pub(super) fn add(&mut self, seq: u64, command: Command) {
        self.waiting.push((seq, command));
    }

    /// The next batch to send. While others are under way, commands are collected until they fill a
    /// batch.
    pub(super) fn next(&mut self) -> Option<Vec<(u64, Command)>> {
        let is_full = self.waiting.len() >= MOST && self.under_way < SIZE;
        if self.waiting.is_empty() || self.under_way > 0 && !is_full {
            return None;
        }
        self.under_way += 1;
        Some(self.waiting.drain(..MOST.min(self.waiting.len())).collect())
    }

    pub(super) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}

/// Executes all of them in one transaction. Returns the answers, and the commands that have to be
/// executed by themselves: those that need more than a short look, and all of them when another
/// client changes one of the keys meanwhile, or when the server refuses the transaction.
pub(super) async fn carry_out(
    setting: &Setting,
    batch: Vec<(u64, Command)>,
) -> (Answers, Vec<(u64, Command)>) {
    if batch.len() < 2 {
        return (Vec::new(), batch);
    }
    let shortest = batch.iter().map(|(_, command)| command.timeout).min();
    let (is_sent, begun) = (AtomicBool::new(false), Moment::now());
    let limit = shortest.unwrap_or(Duration::ZERO);
    let together = timeout(limit, together(setting, &batch, &is_sent)).await;
    match together.unwrap_or_else(|_| Err(late(setting, begun, &is_sent))) {
        Ok(answers) => sorted(batch, answers),
        Err(fault) if fault.class.is_unknown() => {
            (batch.iter().map(|(seq, _)| (*seq, Err(fault.clone()))).collect(), Vec::new())
        }
        Err(_) => (Vec::new(), batch),
    }
}

/// Separates commands with an answer from those without.
fn sorted(
    batch: Vec<(u64, Command)>,
    answers: Vec<Option<Answer>>,
) -> (Answers, Vec<(u64, Command)>) {
    let (mut answered, mut rest) = (Vec::new(), Vec::new());
    for ((seq, command), answer) in batch.into_iter().zip(answers) {
        match answer {
            Some(answer) => answered.push((seq, Ok(answer))),
            None => rest.push((seq, command)),
        }
    }
    (answered, rest)
}

/// The answers; `None` for a command that has to be executed by itself.
async fn together(
    setting: &Setting,
    batch: &[(u64, Command)],
    is_sent: &AtomicBool,
) -> Result<Vec<Option<Answer>>, Fault> {
    let mut terms = setting.terms();
    let plans: Vec<_> = batch.iter().map(|(_, command)| plan(command, &terms)).collect();
    let watch: Vec<String> = plans.iter().flat_map(|plan| plan.watch.iter().cloned()).collect();
    let reads = plans.iter().zip(batch);
    let reads = reads
        .flat_map(|(plan, (_, command))| plan.scope.reads(&command.names, &[], terms.dialect))
        .collect();
    let nothing = || vec![None; batch.len()];
    let lane = batch.first().map_or(Lane::Others, |(_, command)| Lane::of(command));
    let mut leased = setting.pool.lease(lane).await?;
    let answers = match leased.ask(begin(&watch, reads)).await {
        Ok(answers) => answers,
        // The connection was closed while it was idle.
        Err(_) if leased.is_used => return Ok(nothing()),
        Err(error) => return Err(lost(&error)),
    };
    let mut answers = opened(true, answers)?;
    let (mut decided, mut writes) = (Vec::with_capacity(batch.len()), Vec::new());
    for (plan, (_, command)) in plans.iter().zip(batch) {
        let snapshot = Snapshot::read(plan.scope, &[], terms.dialect, &mut answers)?;
        decided.push(match decide(command, &snapshot, &terms) {
            Decision::Write { answer, writes: own, .. } => {
                writes.extend(own);
                Some(answer)
            }
            // These commands notify nobody, so no listeners are asked for.
            _ => None,
        });
    }
    match write(setting, leased, writes, Vec::new(), &mut terms, is_sent).await? {
        Written::Done => {}
        Written::Aborted | Written::Otherwise => return Ok(nothing()),
    }
    for (answer, (_, command)) in decided.iter_mut().zip(batch) {
        if let Some(answer) = answer {
            explain(setting, command, answer).await;
        }
    }
    Ok(decided)
}

/// What is read of a lock. The tombstone is left out: the reason is asked for only when a lock is
/// gone.
fn plan(command: &Command, terms: &DecisionTerms) -> ReadPlan {
    ReadPlan { tombstones: Vec::new(), ..ReadPlan::of(command, terms) }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::domain::kind::Kind;
    use crate::domain::names::Names;

    fn renewal(number: u64) -> (u64, Command) {
        let names = Names::new("", number.to_string());
        let verb = Verb::Renew { token: "t".into(), ttl: None };
        let timeout = Duration::from_secs(1);
        (number, Command { names, kind: Kind::Mutex, verb, timeout })
    }

    #[test]
    fn few_are_collected_while_others_are_under_way_and_many_go_beside_them() {
        let mut line = WaitingBatch::default();
        let add = |line: &mut WaitingBatch, count: usize| {
            (0..count as u64).map(renewal).for_each(|(seq, command)| line.add(seq, command));
        };
        assert!(line.next().is_none());
        add(&mut line, 1);
        assert_eq!(line.next().map(|batch| batch.len()), Some(1));
        add(&mut line, MOST - 1);
        assert!(line.next().is_none(), "they are collected");
        add(&mut line, SIZE * MOST);
        let sizes: Vec<_> = std::iter::from_fn(|| line.next()).map(|batch| batch.len()).collect();
        assert_eq!(sizes, [MOST; SIZE - 1], "each has a connection");
        line.end();
        assert_eq!(line.next().map(|batch| batch.len()), Some(MOST));
        (0..SIZE).for_each(|_| line.end());
        assert_eq!(line.next().map(|batch| batch.len()), Some(MOST - 1));
    }
}
