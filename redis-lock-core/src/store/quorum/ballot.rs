//! The votes on one question that all nodes were asked, without I/O.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::tokens;
use crate::BackendErrorKind;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::too_few::{NoQuorum, NodeVote, Vote};
use crate::store::{Answer, Blocker, Verb};

/// What the answers to a question are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Matter {
    /// Whether a token gets the lock.
    Grant,
    /// Whether a token still has the lock.
    Hold,
    /// What the nodes know. All are waited for, if not for long.
    View,
    /// That it was done.
    Deed,
}

impl Matter {
    pub(super) fn of(verb: &Verb) -> Self {
        match verb {
            Verb::Take { .. } | Verb::Acquire(_) => Self::Grant,
            Verb::Renew { .. }
            | Verb::Keep { .. }
            | Verb::Check { .. }
            | Verb::Newer { .. }
            | Verb::Why { .. }
            | Verb::Downgrade { .. }
            | Verb::Release { .. } => Self::Hold,
            Verb::Look => Self::View,
            Verb::Raise { .. }
            | Verb::Force { .. }
            | Verb::Scan { .. }
            | Verb::Fetch
            | Verb::InUse { .. }
            | Verb::Ping
            | Verb::Probe => Self::Deed,
        }
    }
}

/// What is known of one node's answer.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Said {
    Nothing,
    Answer(Answer),
    /// It granted the lock, and may not vote for that.
    Barred(Vote),
    /// There is no answer, or will be none in time.
    Failed(Fault),
}

/// The votes on one question.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) about: Matter,
    said: Vec<Said>,
    /// The fencing number that the nodes must have before their grants count, once it is known.
    pub(super) fence: Option<u64>,
}

impl Ballot {
    pub(super) fn new(about: Matter, nodes: usize) -> Self {
        Self { about, said: vec![Said::Nothing; nodes], fence: None }
    }

    /// How many nodes must agree: a majority of all.
    pub(super) fn needed(&self) -> usize {
        majority(self.said.len())
    }

    pub(super) fn hear(&mut self, node: usize, said: Said) {
        if let Some(place) = self.said.get_mut(node) {
            *place = said;
        }
    }

    /// The nodes of whose answers this is true.
    pub(super) fn nodes(&self, is_it: impl Fn(&Said) -> bool) -> Vec<usize> {
        let each = self.said.iter().enumerate();
        each.filter(|(_, said)| is_it(said)).map(|(node, _)| node).collect()
    }

    fn count(&self, is_it: impl Fn(&Said) -> bool) -> usize {
        self.said.iter().filter(|said| is_it(said)).count()
    }

    fn agrees(&self, said: &Said) -> bool {
        let Said::Answer(answer) = said else { return false };
        match (self.about, answer) {
            (Matter::Grant, answer) => matches!(answer, Answer::Held { .. }),
            (Matter::Hold, Answer::Gone { .. }) => false,
            (Matter::Hold | Matter::View | Matter::Deed, _) => true,
        }
    }

    fn differs(&self, said: &Said) -> bool {
        matches!(
            (self.about, said),
            (Matter::Grant, Said::Answer(Answer::Busy(_)))
                | (Matter::Hold, Said::Answer(Answer::Gone { .. }))
        )
    }

    /// The largest fencing number of the votes, once enough nodes have granted the lock that only the
    /// numbers are open, and the nodes with smaller numbers. These have voted when they have the largest.
    pub(super) fn take_behind(&mut self) -> Option<(u64, Vec<usize>)> {
        let number = |said: &Said| match said {
            Said::Answer(Answer::Held { fence, .. }) => Some(*fence),
            _ => None,
        };
        let is_decided = self.count(|said| self.agrees(said)) >= self.needed();
        if self.fence.is_none() && is_decided && !planted!(FenceOfOne) {
            self.fence = self.said.iter().filter_map(number).max().flatten();
        }
        let fence = self.fence?;
        let behind = self.nodes(|said| number(said).is_some_and(|own| own < Some(fence)));
        behind.iter().for_each(|node| self.hear(*node, Said::Nothing));
        Some((fence, behind))
    }

    /// No further answers are waited for.
    pub(super) fn close(&mut self) {
        for said in self.said.iter_mut().filter(|said| **said == Said::Nothing) {
            *said = Said::Failed(Fault::new(FaultClass::Late, "no answer in time"));
        }
    }

    /// The outcome, as soon as no further answer can change it.
    pub(super) fn verdict(&self, names: &[Arc<str>]) -> Option<Result<Answer, Fault>> {
        let (needed, spare) = (self.needed(), self.said.len() - self.needed());
        let awaited = self.count(|said| *said == Said::Nothing);
        let agreed = self.count(|said| self.agrees(said));
        let needed_now = match planted!(MajorityOfReached) {
            true => majority(self.count(|said| !matches!(said, Said::Failed(_)))),
            false => needed,
        };
        if agreed >= needed_now && (self.about != Matter::View || awaited == 0) {
            return Some(Ok(self.agreed()));
        }
        let against = self.count(|said| self.differs(said));
        if against > spare {
            return Some(Ok(self.against()));
        }
        let hopeless = self.said.iter().filter_map(|said| match said {
            Said::Failed(fault) => fault.class.is_final().then_some(fault),
            _ => None,
        });
        let hopeless: Vec<_> = hopeless.collect();
        if let Some(fault) = hopeless.first().filter(|_| hopeless.len() > spare) {
            return Some(Err((*fault).clone()));
        }
        let may_still = |count: usize, enough: usize| count + awaited >= enough;
        if may_still(agreed, needed) && awaited > 0
            || may_still(against.max(hopeless.len()), spare + 1)
        {
            return None;
        }
        let has_tombstone = self.count(|said| *said == Said::Answer(Answer::Tombstone)) > 0;
        Some(if has_tombstone { Ok(Answer::Tombstone) } else { Err(self.no_quorum(names)) })
    }

    /// What the nodes agree on.
    fn agreed(&self) -> Answer {
        let answers = self.said.iter().filter_map(|said| match said {
            Said::Answer(answer) if self.agrees(said) => Some(answer),
            _ => None,
        });
        if self.fence.is_some() && self.about == Matter::Grant {
            // A vote that came later may bring a larger number, which no majority has.
            return Answer::Held { fence: self.fence, slot: None };
        }
        if self.about == Matter::View {
            let views = answers.filter_map(|answer| match answer {
                Answer::Seen(view) => Some(&**view),
                _ => None,
            });
            return tokens::merged(&views.collect::<Vec<_>>(), self.said.len(), self.needed());
        }
        let mut answers = answers;
        match answers.next() {
            Some(first) => answers.fold(first.clone(), Answer::and),
            None => Answer::Done,
        }
    }

    /// Why the nodes do not agree: who has the lock, or what became of it.
    fn against(&self) -> Answer {
        let mut blockers = Vec::new();
        let mut gone = None;
        for said in &self.said {
            match said {
                Said::Answer(Answer::Busy(blocker)) => blockers.push(blocker),
                Said::Answer(it @ Answer::Gone { by, because })
                    if by.is_some() || because.is_some() || gone.is_none() =>
                {
                    gone = Some(it.clone());
                }
                _ => {}
            }
        }
        gone.unwrap_or_else(|| Answer::Busy(blocker(&blockers)))
    }

    fn no_quorum(&self, names: &[Arc<str>]) -> Fault {
        let votes = self.said.iter().zip(names).map(|(said, name)| {
            let vote = match said {
                Said::Answer(Answer::Busy(blocker)) => Vote::busy(blocker.value.as_deref()),
                Said::Answer(Answer::Gone { .. } | Answer::Tombstone) => Vote::Missing,
                Said::Answer(_) => Vote::Voted,
                Said::Barred(vote) => vote.clone(),
                Said::Nothing => Vote::Late,
                Said::Failed(fault) if fault.class == FaultClass::Late => Vote::Late,
                Said::Failed(fault) => match fault.kind {
                    BackendErrorKind::Unreachable | BackendErrorKind::TimedOut => {
                        Vote::Unreachable { why: fault.what.clone() }
                    }
                    _ => Vote::Refused { why: fault.what.clone() },
                },
            };
            NodeVote { address: name.to_string(), vote }
        });
        let nodes: Vec<_> = votes.collect();
        let granted = nodes.iter().filter(|node| node.vote == Vote::Voted).count();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let why = NoQuorum { granted: number(granted), needed: number(self.needed()), nodes };
        // What only some nodes have done is not undone, so the next try may find it done.
        let is_unknown = |said: &Said| match said {
            Said::Failed(fault) => fault.class.is_unknown(),
            said => self.about == Matter::Hold && self.agrees(said),
        };
        // What a failed acquisition may leave behind is undone here; all else is asked again.
        let class = match self.about != Matter::Grant && self.count(is_unknown) > 0 {
            true => FaultClass::Unknown,
            false => FaultClass::Refused,
        };
        Fault::new(class, &why).of(BackendErrorKind::NoQuorum).because(why)
    }

    /// Whether a failed attempt keeps what it has. If several attempts have split the votes, the first by
    /// its token continues.
    pub(super) fn goes_on(&self, token: &str) -> bool {
        let unknown = self.count(|said| !matches!(said, Said::Answer(_)));
        let mut others: BTreeMap<&str, usize> = BTreeMap::new();
        for said in &self.said {
            if let Said::Answer(Answer::Busy(Blocker { value, .. })) = said {
                let Some(value) = value else { return false };
                *others.entry(value).or_default() += 1;
            }
        }
        others.iter().all(|(other, count)| count + unknown < self.needed() && token < *other)
    }
}

/// How many of these are a majority.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whom to wait for: the one who has the most nodes.
fn blocker(blockers: &[&Blocker]) -> Blocker {
    let count = |one: &Blocker| blockers.iter().filter(|it| it.value == one.value).count();
    let Some(most) = blockers.iter().max_by_key(|it| count(it)) else {
        return Blocker::unknown();
    };
    let same = blockers.iter().filter(|it| it.value == most.value);
    let ttl = same.map(|it| it.ttl.unwrap_or(Duration::MAX)).max();
    Blocker {
        value: most.value.clone(),
        ttl: ttl.filter(|ttl| *ttl != Duration::MAX),
        queued: blockers.iter().any(|it| it.queued),
        repaired: blockers.iter().any(|it| it.repaired),
        asked: false,
    }
}
