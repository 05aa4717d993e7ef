//! What follows from the answers of the nodes.

use std::sync::Arc;

use super::super::ballot::{Matter, Said};
use super::super::node::{Ask, Does};
use super::super::tokens;
use super::{Inquiry, QuorumWire};
use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::too_few::Vote;
use crate::store::{Acquire, Answer, Command, Pulled, Verb};

impl QuorumWire {
    /// A node has answered, or will not.
    pub(super) fn hear(&mut self, at: usize, ask: Ask, answer: Result<Answer, Fault>, now: Moment) {
        if ask.does == Does::Cards {
            self.carded(at, &ask, &answer);
        }
        let Some(seq) = ask.ballot else { return };
        let node = self.nodes.get(at);
        let bar = node.and_then(|node| node.bar(now));
        let may_end = node.is_some_and(|node| {
            ask.token.as_ref().is_some_and(|token| node.tokens.may_end(token, now))
        });
        let Some(question) = self.questions.get_mut(&seq) else { return };
        question.under_way = question.under_way.saturating_sub(1);
        if let Verb::Scan { cursor } = question.command.verb {
            return self.scanned(seq, cursor, answer);
        }
        let is_renewal = matches!(question.command.verb, Verb::Renew { .. });
        let fence = question.ballot.fence;
        let said = match (answer, bar) {
            (Ok(Answer::Done), _) if ask.does == Does::Raises => {
                Said::Answer(Answer::Held { fence, slot: None })
            }
            (Ok(Answer::Held { .. } | Answer::Renewed { .. }), _) if may_end => {
                Said::Barred(Vote::Late)
            }
            (Ok(Answer::Held { .. }), Some(bar)) => Said::Barred(bar),
            (Ok(Answer::Renewed { .. }), Some(Vote::Clock)) => Said::Barred(Vote::Clock),
            (Ok(answer), _) => Said::Answer(answer),
            (Err(fault), _) => Said::Failed(fault),
        };
        match question.outcome {
            None => {
                if planted!(RepairCounts) && is_renewal && is_absent(&said) {
                    let (longer, command) = (None, question.command.clone());
                    let renewed = Answer::Renewed { longer, waited_for: false, slot: None };
                    question.ballot.hear(at, Said::Answer(renewed));
                    self.repair(&command, at, now);
                    return self.decide(seq, now);
                }
                question.ballot.hear(at, said);
                self.decide(seq, now);
            }
            Some(true) if is_renewal && is_absent(&said) => {
                let command = question.command.clone();
                self.repair(&command, at, now);
            }
            // The vote of one that came late is kept, and counts from now on.
            Some(true) if planted!(WinnerUndone) && question.ballot.about == Matter::Grant => {
                let command = question.command.clone();
                self.give_back(&command, at, now);
            }
            Some(_) => {}
        }
        self.forget_if_done(seq);
    }

    pub(super) fn give(&mut self, seq: u64, answer: Result<Answer, Fault>) {
        let Some(question) = self.questions.get_mut(&seq) else { return };
        if question.outcome.is_none() {
            question.outcome = Some(is_agreed(&answer));
            self.deadlines.remove(&(question.deadline, seq));
            self.decided.push_back(Pulled::Done(seq, answer));
        }
        self.forget_if_done(seq);
    }

    fn forget_if_done(&mut self, seq: u64) {
        let is_done = |it: &Inquiry| it.under_way == 0 && it.outcome.is_some();
        if self.questions.get(&seq).is_some_and(is_done) {
            self.questions.remove(&seq);
        }
    }

    /// Gives the outcome of a question, if there is one by now.
    pub(super) fn decide(&mut self, seq: u64, now: Moment) {
        self.raise(seq, now);
        let Some(question) = self.questions.get(&seq) else { return };
        if let Some(mut verdict) = question.ballot.verdict(&self.names) {
            let command = question.command.clone();
            let (losers, absent) = (question.losers(&verdict), question.ballot.nodes(is_absent));
            losers.into_iter().for_each(|at| self.give_back(&command, at, now));
            match &command.verb {
                Verb::Renew { .. } if is_agreed(&verdict) => {
                    absent.into_iter().for_each(|at| self.repair(&command, at, now));
                }
                Verb::Downgrade { token } if is_agreed(&verdict) => {
                    self.repair_as(token, Some(Kind::Read));
                }
                _ => {}
            }
            if let Ok(Answer::Seen(view)) = &mut verdict
                && let Some(server) = &mut view.server
            {
                self.roster.describe(server, now);
            }
            self.give(seq, verdict);
        }
    }

    /// The nodes that have granted the lock have to know the largest of their numbers. They have as long for
    /// that as for their votes.
    fn raise(&mut self, seq: u64, now: Moment) {
        let Some(question) = self.questions.get_mut(&seq) else { return };
        let is_first = question.ballot.fence.is_none();
        let Some((fence, behind)) = question.ballot.take_behind() else { return };
        let Some(token) = question.command.verb.token().cloned() else { return };
        if is_first {
            self.deadlines.remove(&(question.deadline, seq));
            question.deadline = now.after(question.patience);
            self.deadlines.insert((question.deadline, seq));
        }
        let (kind, verb) = (Kind::All { ordered: false }, Verb::Raise { token, fence });
        let command = Command { kind, verb, ..question.command.clone() };
        for at in behind {
            self.ask(seq, at, command.clone(), now);
        }
    }

    /// Gives the lock back to a node that has lost it or never had it. The node counts after it has
    /// confirmed a renewal.
    fn repair(&mut self, renewal: &Command, at: usize, now: Moment) {
        let Verb::Renew { token, ttl } = &renewal.verb else { return };
        let terms = Acquire { fair: false, ..Acquire::of(Arc::clone(token), *ttl) };
        // A node that never knew it, or has forgotten it since, has not heard what became of a writer.
        let kind = self.nodes.iter().find_map(|node| node.tokens.other_kind(token, renewal.kind));
        if let Some(node) = self.nodes.get_mut(at)
            && let Some(kind) = node.tokens.repaired_as(token, kind)
        {
            let command = Command { kind, verb: Verb::Acquire(terms), ..renewal.clone() };
            node.push(command, None, now);
        }
    }

    /// From now on nodes bring a token back as that, if at all.
    pub(super) fn repair_as(&mut self, token: &str, kind: Option<Kind>) {
        for node in &mut self.nodes {
            node.tokens.repair_as(token, kind);
        }
    }

    /// Has a node give back what it has of a token, or may get yet.
    fn give_back(&mut self, command: &Command, at: usize, now: Moment) {
        if let (Some(token), Some(node)) = (command.verb.token(), self.nodes.get_mut(at)) {
            node.push(tokens::release(token, &command.names, command.kind), None, now);
        }
    }
}

impl Inquiry {
    /// The nodes that give the token back after this verdict. For a failed attempt, those are the nodes
    /// that may have it or may still get it. For a lost hold, they are all nodes, because a minority may
    /// still have a part.
    fn losers(&self, verdict: &Result<Answer, Fault>) -> Vec<usize> {
        let (verb, ballot) = (&self.command.verb, &self.ballot);
        let is_single = !matches!(self.command.kind, Kind::All { .. });
        let goes_on = match verb {
            _ if verdict.is_err() || planted!(LoserKept) => planted!(LoserKept),
            // It is asked for once more at once, which tells who has it.
            Verb::Take { .. } => true,
            Verb::Acquire(terms) => terms.queue.is_some() && ballot.goes_on(&terms.token),
            verb => matches!(verb, Verb::Release { .. }),
        };
        match (ballot.about, verdict) {
            _ if is_agreed(verdict) || goes_on => Vec::new(),
            (Matter::Grant, verdict) => {
                // A caller that does not wait takes it that nothing is left, also of an earlier attempt.
                let is_over =
                    verdict.is_ok() && matches!(verb, Verb::Acquire(it) if it.queue.is_none());
                ballot.nodes(|said| match said {
                    Said::Nothing | Said::Barred(_) | Said::Answer(Answer::Held { .. }) => true,
                    Said::Failed(fault) => fault.class.is_unknown() || is_over,
                    Said::Answer(_) => false,
                })
            }
            (Matter::Hold, Ok(Answer::Gone { .. })) if is_single => ballot.nodes(|_| true),
            _ => Vec::new(),
        }
    }
}

/// Whether the nodes did what they were asked for.
fn is_agreed(verdict: &Result<Answer, Fault>) -> bool {
    !matches!(verdict, Err(_) | Ok(Answer::Busy(_) | Answer::Gone { .. } | Answer::Tombstone))
}

fn is_absent(said: &Said) -> bool {
    matches!(said, Said::Answer(Answer::Gone { by: None, because: None }))
}
