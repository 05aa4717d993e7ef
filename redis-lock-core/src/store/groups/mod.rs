//! A lock of several keys on a server in cluster mode, where a script may use keys of one slot
//! only.
//!
//! The keys form groups of one slot each, and one step takes a group. All groups are asked for at
//! once. When one is busy, those after it are given back, and those before it as well, unless the
//! acquisition keeps what comes first (`ordered`). The order of groups is the same in all
//! processes, so that holders of some groups that wait for the next never wait for each other in a
//! circle. No I/O happens here: a [`Split`] says what to ask, and combines the answers.

mod cluster_mode;

pub(crate) use cluster_mode::ClusterMode;

use std::sync::Arc;

use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::store::{Acquire, Answer, Command, Verb};
use cluster_mode::{End, GroupAttempt};

/// One command that is carried out in several parts.
#[derive(Debug)]
pub(crate) struct Split {
    command: Command,
    stage: SplitStage,
    /// The last answer of each group.
    answers: Vec<Option<Result<Answer, Fault>>>,
    /// How many parts have no answer yet.
    open: usize,
    /// The worst failure since the stage began.
    failure: Option<Fault>,
}

#[derive(Debug)]
enum SplitStage {
    /// Every group is sent the same command, such as a renewal, a look or a release.
    Broadcasting,
    Acquiring(GroupAttempt),
    /// Every key is acquired, and their counters are raised to one fencing number.
    Raising(GroupAttempt, u64),
    /// Not every key could be acquired, so the others are given back. Then this is the answer.
    GivingBack(GroupAttempt, Result<Answer, Fault>),
}

/// The next step of a [`Split`].
#[derive(Debug)]
pub(crate) enum NextPart {
    Ask(Vec<Part>),
    Done(Result<Answer, Fault>),
}

/// A command for one group.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) group: usize,
    pub(crate) command: Command,
}

/// Whether a command is for keys of several slots.
pub(crate) fn is_split(kind: Kind, names: &Names) -> bool {
    matches!(kind, Kind::All { .. }) && names.groups().len() > 1
}

impl Split {
    pub(crate) fn start(command: &Command, cluster: &Arc<ClusterMode>) -> (Self, NextPart) {
        let count = command.names.groups().len();
        let mut split = Self {
            command: command.clone(),
            stage: SplitStage::Broadcasting,
            answers: vec![None; count],
            open: 0,
            failure: None,
        };
        let first = match &command.verb {
            Verb::Acquire(Acquire { token, .. }) => match cluster.begin(token) {
                Some((attempt, place)) => {
                    split.stage = SplitStage::Acquiring(attempt);
                    // A token that is in a group's queue is asked for there first, together with
                    // the groups that it keeps.
                    match place {
                        Some(at) if split.is_ordered() => 0..at + 1,
                        Some(at) => at..at + 1,
                        None => 0..count,
                    }
                }
                None => return (split, NextPart::Done(Ok(Answer::Tombstone))),
            },
            Verb::Release { token, .. } => {
                cluster.forget(token);
                0..count
            }
            _ => 0..count,
        };
        let verb = &command.verb;
        let next = split.ask(first.map(|group| (group, verb.clone())).collect());
        (split, next)
    }

    /// The answer of one group.
    pub(crate) fn answered(&mut self, group: usize, answer: Result<Answer, Fault>) {
        self.open = self.open.saturating_sub(1);
        match self.stage {
            SplitStage::Broadcasting | SplitStage::Acquiring(_) => {
                if let Some(slot) = self.answers.get_mut(group) {
                    *slot = Some(answer);
                }
            }
            SplitStage::Raising(..) | SplitStage::GivingBack(..) => {
                if let Err(fault) = answer {
                    self.fail(fault);
                }
            }
        }
    }

    /// An unknown outcome counts more than a refusal.
    fn fail(&mut self, fault: Fault) {
        let is_unknown = |fault: &Fault| fault.class.is_unknown();
        if self.failure.as_ref().is_none_or(|known| !is_unknown(known) && is_unknown(&fault)) {
            self.failure = Some(fault);
        }
    }

    /// The next step; `None` while answers are missing.
    pub(crate) fn next(&mut self) -> Option<NextPart> {
        if self.open > 0 {
            return None;
        }
        let next = match std::mem::replace(&mut self.stage, SplitStage::Broadcasting) {
            SplitStage::Broadcasting => NextPart::Done(self.combined()),
            SplitStage::Acquiring(attempt) => self.acquired(attempt),
            SplitStage::Raising(attempt, fence) => match self.failure.take() {
                Some(fault) => self.give_back(attempt, Err(fault)),
                None => self.end(&attempt, Ok(Answer::Held { fence: Some(fence), slot: None })),
            },
            SplitStage::GivingBack(attempt, verdict) => {
                let failure = self.failure.take();
                if !failure.as_ref().is_some_and(|fault| fault.class.is_unknown()) {
                    attempt.gave_back();
                }
                match failure {
                    // What could not be given back is released with the token, whose outcome is
                    // unknown.
                    Some(fault) => {
                        let what = format!("keys could not be given back: {}", fault.what);
                        let class = partly_done(fault.class);
                        self.end(&attempt, Err(Fault { class, what, ..fault }))
                    }
                    None => self.end(&attempt, verdict),
                }
            }
        };
        Some(next)
    }

    /// The connection broke, so the outcome is unknown.
    pub(crate) fn broken(mut self, fault: Fault) -> Result<Answer, Fault> {
        match std::mem::replace(&mut self.stage, SplitStage::Broadcasting) {
            SplitStage::Broadcasting => {}
            SplitStage::Acquiring(attempt)
            | SplitStage::Raising(attempt, _)
            | SplitStage::GivingBack(attempt, _) => drop(self.end(&attempt, Err(fault.clone()))),
        }
        Err(fault)
    }

    /// Every group of an acquisition that was asked has answered.
    fn acquired(&mut self, attempt: GroupAttempt) -> NextPart {
        if attempt.is_superseded() {
            return superseded();
        }
        if let Some(obstacle) = self.obstacle() {
            return self.give_back(attempt, obstacle);
        }
        let missing = self.groups().filter(|group| self.answer(*group).is_none());
        let missing: Vec<_> = missing.map(|group| (group, self.command.verb.clone())).collect();
        if !missing.is_empty() {
            self.stage = SplitStage::Acquiring(attempt);
            return self.ask(missing);
        }
        let highest = self.groups().filter_map(|group| self.number(group)).max();
        let Some((token, fence)) = self.token().zip(highest) else {
            return self.end(&attempt, Ok(Answer::Held { fence: None, slot: None }));
        };
        let low = self.groups().filter(|group| self.number(*group) < highest);
        let raise = |group| (group, Verb::Raise { token: Arc::clone(token), fence });
        let low: Vec<_> = low.map(raise).collect();
        if low.is_empty() {
            return self.end(&attempt, Ok(Answer::Held { fence: Some(fence), slot: None }));
        }
        self.stage = SplitStage::Raising(attempt, fence);
        self.ask(low)
    }

    /// The worst fault of all groups: an unknown outcome counts more than a refusal.
    fn worst_fault(&self) -> Option<&Result<Answer, Fault>> {
        let faults = || self.answers.iter().flatten().filter(|answer| answer.is_err());
        let is_unknown = |answer: &&Result<Answer, Fault>| {
            answer.as_ref().is_err_and(|fault| fault.class.is_unknown())
        };
        faults().find(is_unknown).or_else(|| faults().next())
    }

    /// The answer that keeps the lock from being acquired, if there is one: errors come before busy
    /// keys, as in a script for all keys, and the first busy key before others.
    fn obstacle(&self) -> Option<Result<Answer, Fault>> {
        let answers = || self.answers.iter().flatten();
        let fault = self.worst_fault();
        let tombstone = || answers().find(|answer| matches!(answer, Ok(Answer::Tombstone)));
        let busy = || answers().find(|answer| matches!(answer, Ok(Answer::Busy(_))));
        fault.or_else(tombstone).or_else(busy).cloned()
    }

    /// Gives back what an attempt may not keep. After that, `verdict` is the answer.
    fn give_back(&mut self, attempt: GroupAttempt, verdict: Result<Answer, Fault>) -> NextPart {
        let Verb::Acquire(Acquire { token, queue, .. }) = &self.command.verb else {
            return NextPart::Done(verdict);
        };
        let (queue, queued) = (*queue, self.place(&verdict));
        let kept = queued.filter(|_| self.is_ordered()).unwrap_or(0);
        let release = Verb::Release {
            token: Arc::clone(token),
            waited_for: false,
            keep: None,
            share: None,
            tombstone: None,
        };
        // Groups that are kept while waiting last as long as the place in the queue.
        let keep = |time| Verb::Keep { token: Arc::clone(token), time };
        let todo = |group| match self.answer(group)? {
            _ if group < kept => queue.map(|time| (group, keep(time))),
            _ if Some(group) == queued => None,
            // Nothing was executed there, and a release would be refused as well.
            Err(_) => None,
            // Without a place in the queue, a busy group has nothing of the token.
            Ok(Answer::Busy(_)) if queue.is_none() => None,
            _ => Some((group, release.clone())),
        };
        let todo: Vec<_> = self.groups().filter_map(todo).collect();
        if todo.is_empty() {
            return self.end(&attempt, verdict);
        }
        if !attempt.gives_back() {
            return superseded();
        }
        self.stage = SplitStage::GivingBack(attempt, verdict);
        self.ask(todo)
    }

    fn end(&self, attempt: &GroupAttempt, answer: Result<Answer, Fault>) -> NextPart {
        let end = match (self.place(&answer), &answer) {
            (Some(place), _) => End::Queued(place),
            (None, Err(fault)) if fault.class.is_unknown() => End::Unknown,
            (None, _) => End::Clear,
        };
        attempt.end(end);
        NextPart::Done(answer)
    }

    /// The group in whose queue the token is after this answer.
    fn place(&self, answer: &Result<Answer, Fault>) -> Option<usize> {
        let queued = matches!(answer, Ok(Answer::Busy(blocker)) if blocker.queued);
        let busy = |answer: &Option<_>| matches!(answer, Some(Ok(Answer::Busy(_))));
        self.answers.iter().position(busy).filter(|_| queued)
    }

    /// Combines the answers of all groups to one command.
    fn combined(&self) -> Result<Answer, Fault> {
        let answers = || self.answers.iter().flatten();
        let fault = self.worst_fault();
        let known = |answer: &&_| matches!(answer, Ok(Answer::Gone { because: Some(_), .. }));
        let reason = answers().find(known);
        let gone = || answers().find(|answer| matches!(answer, Ok(Answer::Gone { .. })));
        let lost = reason.or_else(gone);
        let worst = match self.command.verb {
            // A group that was not released has to be released again.
            Verb::Release { .. } => match (fault, lost) {
                (Some(Err(fault)), None) if self.is_half_done() => {
                    return Err(half_done(fault));
                }
                (fault, lost) => fault.or(lost),
            },
            // A lock of several keys is lost when one key is.
            _ => lost.or(fault),
        };
        worst.cloned().unwrap_or_else(|| Ok(self.done()))
    }

    /// Whether at least one group executed the command.
    fn is_half_done(&self) -> bool {
        self.answers.iter().flatten().any(|answer| *answer == Ok(Answer::Done))
    }

    /// The answer when every group executed the command.
    fn done(&self) -> Answer {
        let none = match self.command.verb {
            Verb::Renew { .. } => Answer::Renewed { longer: None, waited_for: false, slot: None },
            _ => return Answer::Done,
        };
        self.answers.iter().flatten().flatten().fold(none, Answer::and)
    }

    fn ask(&mut self, parts: Vec<(usize, Verb)>) -> NextPart {
        let groups = self.command.names.groups();
        let part = |(group, verb): (usize, Verb)| {
            let names = groups.get(group)?.clone();
            Some(Part { group, command: Command { names, verb, ..self.command.clone() } })
        };
        let parts: Vec<_> = parts.into_iter().filter_map(part).collect();
        self.open = parts.len();
        NextPart::Ask(parts)
    }

    /// The fencing number that a group gave.
    fn number(&self, group: usize) -> Option<u64> {
        match self.answer(group)? {
            Ok(Answer::Held { fence, .. }) => *fence,
            _ => None,
        }
    }

    fn groups(&self) -> std::ops::Range<usize> {
        0..self.answers.len()
    }

    fn answer(&self, group: usize) -> Option<&Result<Answer, Fault>> {
        self.answers.get(group)?.as_ref()
    }

    fn token(&self) -> Option<&Arc<str>> {
        self.command.verb.token()
    }

    fn is_ordered(&self) -> bool {
        self.command.kind == Kind::All { ordered: true }
    }
}

/// Some groups were released and one refused. When all are released again, the first are gone,
/// which is not a loss.
fn half_done(fault: &Fault) -> Fault {
    let class = match fault.class {
        class @ (FaultClass::Refused | FaultClass::Moving) => partly_done(class),
        class => class,
    };
    Fault { class, ..fault.clone() }
}

/// The class of a fault when other groups executed the command.
fn partly_done(class: FaultClass) -> FaultClass {
    if class.is_moving() { FaultClass::PartlyDone } else { FaultClass::Unknown }
}

/// The answer of an attempt whose token was asked for again: the newer attempt knows more.
fn superseded() -> NextPart {
    let what = "no answer came in time, and the lock was asked for again";
    NextPart::Done(Err(Fault::new(FaultClass::Unknown, what)))
}

#[cfg(test)]
mod tests;
