//! What follows from the answers of the nodes.

use std::sync::Arc;

use super::super::ballot::{Matter, Said};
use super::super::node::{Ask, Does};
use super::super::tokens;
use super::{Inquiry, QuorumWire};
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
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
        let bar = node.and_then(|node| node.seat.bar(now));
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
                Said::Answer(Answer::Held { fence })
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
                    let renewed = Answer::Renewed { longer, waited_for: false };
                    question.ballot.hear(at, Said::Answer(renewed));
                    self.repair(&command, at, now);
                    return self.decide(seq, now);
                }
                let behind = fence.filter(|fence| is_behind(&said, *fence));
                question.ballot.hear(at, said);
                behind.into_iter().for_each(|fence| self.raise(seq, fence, at, now));
                self.decide(seq, now);
            }
            Some(true) if is_renewal && is_absent(&said) => {
                let command = question.command.clone();
                self.repair(&command, at, now);
            }
            // The vote of one that came late is kept, and counts from now on.
            Some(true) if planted!(WinnerUndone) && question.ballot.about == Matter::Grant => {
                if let (Some(token), Some(node)) = (&ask.token, self.nodes.get_mut(at)) {
                    node.release(tokens::release(token, &ask.names, ask.kind), None, now);
                }
            }
            Some(_) => {}
        }
        self.forget_if_done(seq);
    }

    pub(super) fn give(&mut self, seq: u64, answer: Result<Answer, Fault>) {
        let Some(question) = self.questions.get_mut(&seq) else { return };
        if question.outcome.is_none() {
            question.outcome = Some(answer.is_ok());
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
        if let Some(fence) = self.questions.get_mut(&seq).and_then(|it| it.ballot.begin_fence()) {
            self.begin_raise(seq, fence, now);
        }
        let Some(question) = self.questions.get(&seq) else { return };
        if let Some(mut verdict) = question.ballot.verdict(&self.names) {
            let (about, command) = (question.ballot.about, question.command.clone());
            let is_against = |answer: &Answer| {
                matches!(answer, Answer::Busy(_) | Answer::Gone { .. } | Answer::Tombstone)
            };
            let has_agreed = verdict.as_ref().is_ok_and(|answer| !is_against(answer));
            if has_agreed && matches!(command.verb, Verb::Renew { .. }) {
                for at in question.ballot.nodes(is_absent) {
                    self.repair(&command, at, now);
                }
            } else if let (true, Verb::Downgrade { token }) = (has_agreed, &command.verb) {
                for node in &mut self.nodes {
                    node.tokens.repair_as(token, Some(Kind::Read));
                }
            } else if about == Matter::Grant && !has_agreed {
                self.undo(seq, verdict.is_err(), now);
            } else if let Ok(Answer::Gone { .. }) = &verdict
                && !matches!(command.verb, Verb::Release { .. })
                && !matches!(command.kind, Kind::All { .. })
            {
                self.give_up(&command, now);
            }
            if let Ok(Answer::Seen(view)) = &mut verdict
                && let Some(server) = &mut view.server
            {
                self.roster.describe(server, now);
            }
            self.give(seq, verdict);
            if let Some(question) = self.questions.get_mut(&seq) {
                question.outcome = Some(has_agreed);
            }
        }
    }

    /// The nodes that have granted the lock have to know the largest of their numbers.
    fn begin_raise(&mut self, seq: u64, fence: u64, now: Moment) {
        let Some(question) = self.questions.get_mut(&seq) else { return };
        self.deadlines.remove(&(question.deadline, seq));
        question.deadline = now.after(question.patience);
        self.deadlines.insert((question.deadline, seq));
        for at in question.ballot.nodes(|said| is_behind(said, fence)) {
            self.raise(seq, fence, at, now);
        }
    }

    /// Has a node that has granted the lock remember a larger number than its own.
    fn raise(&mut self, seq: u64, fence: u64, at: usize, now: Moment) {
        let Some(question) = self.questions.get_mut(&seq) else { return };
        let Some(token) = question.command.verb.token().cloned() else { return };
        let command = Command {
            kind: Kind::All { ordered: false },
            verb: Verb::Raise { token, fence },
            ..question.command.clone()
        };
        if let Some(node) = self.nodes.get_mut(at) {
            match node.push(command, Some(seq), now) {
                true => question.under_way += 1,
                false => question.ballot.hear(at, Said::Failed(node.unreachable())),
            }
        }
    }

    /// Lets a node have the lock that it does not have any more, or never had. It counts when it has
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

    /// Gives back what a minority still has of a hold that is lost.
    fn give_up(&mut self, command: &Command, now: Moment) {
        let Some(token) = command.verb.token() else { return };
        for node in &mut self.nodes {
            node.release(tokens::release(token, &command.names, command.kind), None, now);
        }
    }

    /// Gives back what an attempt that has failed has, or may get yet.
    fn undo(&mut self, seq: u64, is_fault: bool, now: Moment) {
        let Some(question) = self.questions.get(&seq) else { return };
        let (command, ballot) = (&question.command, &question.ballot);
        let Some(token) = command.verb.token().cloned() else { return };
        let goes_on = match &command.verb {
            _ if is_fault || planted!(LoserKept) => planted!(LoserKept),
            // It is asked for once more at once, which tells who has it.
            Verb::Take { .. } => true,
            Verb::Acquire(terms) => terms.queue.is_some() && ballot.goes_on(&token),
            _ => false,
        };
        if goes_on {
            return;
        }
        // A caller that does not wait takes it that nothing is left, also of an earlier attempt with this token.
        let is_over =
            !is_fault && matches!(&command.verb, Verb::Acquire(terms) if terms.queue.is_none());
        let may_have = |said: &Said| match said {
            Said::Nothing | Said::Barred(_) | Said::Answer(Answer::Held { .. }) => true,
            Said::Failed(fault) => fault.class.is_unknown() || is_over,
            Said::Answer(_) => false,
        };
        for at in ballot.nodes(may_have) {
            if let Some(node) = self.nodes.get_mut(at) {
                node.release(tokens::release(&token, &command.names, command.kind), None, now);
            }
        }
    }
}

fn is_absent(said: &Said) -> bool {
    matches!(said, Said::Answer(Answer::Gone { by: None, because: None }))
}

fn is_behind(said: &Said, fence: u64) -> bool {
    matches!(said, Said::Answer(Answer::Held { fence: own }) if own.is_none_or(|own| own < fence))
}
