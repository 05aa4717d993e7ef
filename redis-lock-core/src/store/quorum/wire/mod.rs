//! One connection that leads to all nodes: each command goes to all, and has one outcome by a majority.
//!
//! Each node has a connection, which may break and be made again. An answer that does not come in time
//! counts as none, so a slow node delays nothing. The remains of failed questions are undone here,
//! after the caller has its answer.

mod card;
mod outcome;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use self::card::Cards;
use super::ballot::{Ballot, Matter, Said, majority};
use super::node::Node;
use super::seat::Roster;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Answer, Command, Filled, Pulled, Verb, Wire};

/// How long a node may take to answer: a twentieth of the lease, within these limits.
const LEAST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(500);

pub(super) struct QuorumWire {
    pub(super) nodes: Vec<Node>,
    roster: Arc<Roster>,
    names: Vec<Arc<str>>,
    questions: BTreeMap<u64, Inquiry>,
    /// When questions without an outcome are decided by what was answered until then.
    deadlines: BTreeSet<(Moment, u64)>,
    decided: VecDeque<Pulled>,
    cards: Cards,
    /// How long a node may be silent.
    time_limit: Duration,
}

/// A question that some node has not answered yet.
struct Inquiry {
    command: Command,
    ballot: Ballot,
    deadline: Moment,
    /// How long a node may take to answer.
    patience: Duration,
    /// How many nodes have not answered.
    under_way: usize,
    /// Whether the nodes agreed, once that is decided.
    outcome: Option<bool>,
}

impl QuorumWire {
    pub(super) fn new(nodes: Vec<Node>, roster: Arc<Roster>, time_limit: Duration) -> Self {
        let names = roster.names();
        Self {
            nodes,
            roster,
            names,
            questions: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            decided: VecDeque::new(),
            cards: Cards::default(),
            time_limit,
        }
    }

    /// Takes in the connections that were made.
    pub(super) fn take_links(&mut self, now: Moment) -> bool {
        self.nodes.iter_mut().fold(false, |any, node| node.take_link(now) | any)
    }

    /// Why nothing can be asked of this quorum at all.
    pub(super) fn misuse(&self) -> Option<Fault> {
        let is_misuse = |fault: &&Fault| fault.class == FaultClass::Unsupported;
        let of_a_node = self.nodes.iter().filter_map(Node::trouble).find(is_misuse).cloned();
        of_a_node.or_else(|| self.strangers())
    }

    /// Why there is no majority, where too few nodes can be reached.
    pub(super) fn no_answer(&self) -> Fault {
        let mut ballot = Ballot::new(Matter::Deed, self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            ballot.hear(
                at,
                match node.is_linked() {
                    true => Said::Answer(Answer::Done),
                    false => Said::Failed(node.unreachable()),
                },
            );
        }
        let fault = ballot.verdict(&self.names).and_then(Result::err);
        fault.unwrap_or_else(|| Fault::new(FaultClass::Refused, "too few nodes can be reached"))
    }

    fn open(&mut self, seq: u64, mut command: Command, now: Moment) {
        if let Kind::All { ordered } = &mut command.kind {
            // What is kept while others are waited for would be a minority's.
            *ordered = false;
        }
        let patience = command.verb.ttl().map_or(MOST, |ttl| (ttl / 20).clamp(LEAST, MOST));
        let patience = patience.min(command.timeout);
        let deadline = now.after(patience);
        let ballot = Ballot::new(Matter::of(&command.verb), self.nodes.len());
        let question = Inquiry { command, ballot, deadline, patience, under_way: 0, outcome: None };
        self.deadlines.insert((deadline, seq));
        self.questions.insert(seq, question);
    }

    /// Asks all nodes that can be reached, or one after the other.
    fn ask_all(&mut self, seq: u64, now: Moment) {
        let Some(question) = self.questions.get(&seq) else { return };
        let command = question.command.clone();
        match &command.verb {
            Verb::Scan { cursor } => return self.scan(seq, *cursor, now),
            Verb::Downgrade { token } => {
                let kinds = self.nodes.iter().map(|it| it.tokens.other_kind(token, command.kind));
                let is_reader = kinds.flatten().flatten().any(|kind| kind == Kind::Read);
                // Until it is certain, it is neither the one nor the other, but where it is asked again.
                let kind = (is_reader && !planted!(ReaderStaysAway)).then_some(Kind::Read);
                self.repair_as(token, kind);
            }
            _ => {}
        }
        for at in 0..self.nodes.len() {
            self.ask(seq, at, command.clone(), now);
        }
    }

    /// Asks a node for its part in the answer to a question.
    fn ask(&mut self, seq: u64, at: usize, command: Command, now: Moment) {
        let (Some(question), Some(node)) = (self.questions.get_mut(&seq), self.nodes.get_mut(at))
        else {
            return;
        };
        match node.push(command, Some(seq), now) {
            true => question.under_way += 1,
            false => question.ballot.hear(at, Said::Failed(node.unreachable())),
        }
    }

    /// Decides what was not answered in time.
    fn expire(&mut self, now: Moment) {
        while let Some((deadline, seq)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.remove(&(deadline, seq));
            if let Some(question) = self.questions.get_mut(&seq) {
                question.ballot.close();
                self.decide(seq, now);
            }
        }
    }

    /// Hands out the answers that have arrived.
    fn read(&mut self, now: Moment) {
        for at in 0..self.nodes.len() {
            loop {
                let questions = &self.questions;
                let has_failed = |seq| {
                    let question: Option<&Inquiry> = questions.get(&seq);
                    question.is_some_and(|it| it.outcome == Some(false))
                };
                let pulled = self.nodes.get_mut(at).and_then(|node| node.pull(&has_failed, now));
                let Some((ask, answer)) = pulled else { break };
                self.hear(at, ask, answer, now);
            }
        }
    }
}

impl Wire for QuorumWire {
    fn push(&mut self, seq: u64, command: Command) {
        let now = Moment::now();
        self.take_links(now);
        let strangers = self.strangers().filter(|_| Matter::of(&command.verb) == Matter::Grant);
        self.open(seq, command, now);
        if let Some(fault) = strangers {
            return self.give(seq, Err(fault));
        }
        self.ask_all(seq, now);
        self.decide(seq, now);
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.nodes.iter_mut().fold(false, |any, node| node.flush() | any) {
            self.read(Moment::now());
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.nodes.iter().all(Node::is_flushed)
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let now = Moment::now();
        let mut all = Filled { received: self.take_links(now), more: false };
        for node in &mut self.nodes {
            let filled = node.fill(self.time_limit, now);
            all.received |= filled.received;
            all.more |= filled.more;
        }
        self.read(now);
        self.expire(now);
        self.nodes.iter_mut().for_each(|node| node.note_rejoin(now));
        self.write_cards(now);
        self.flush()?;
        // What was decided, also that no node answers, is as good as an answer.
        all.received |= !self.decided.is_empty();
        Ok(all)
    }

    fn pull(&mut self, _: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        self.decided.pop_front()
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // All are polled, so that each wakes this task.
        let nodes = self.nodes.iter_mut().skip(usize::from(planted!(NodeUnwatched)));
        let polled = nodes.map(|node| node.poll_ready(context));
        polled.fold(Poll::Pending, |all, node| if node.is_ready() { node } else { all }).map(Ok)
    }

    fn unwatch(&mut self) {
        self.nodes.iter_mut().for_each(Node::unwatch);
    }

    fn owes_since(&self, _: Moment) -> Option<Moment> {
        None
    }

    fn owes_releases(&self) -> bool {
        self.nodes.iter().any(Node::owes_releases)
    }

    fn due(&self) -> Moment {
        if !self.decided.is_empty() {
            return Moment::START;
        }
        let deadline = self.deadlines.first().map_or(Moment::NEVER, |(deadline, _)| *deadline);
        let silent = self.nodes.iter().map(|node| node.silent_at(self.time_limit)).min();
        deadline.min(silent.unwrap_or(Moment::NEVER))
    }
}

/// The bits of a cursor that are the node's own.
const NODE_SHIFT: u32 = 56;
const INSIDE: u64 = (1 << NODE_SHIFT) - 1;

impl QuorumWire {
    /// Scans one node after the other: every lock is on more than half of them. The upper bits of the
    /// cursor say which node it is at.
    pub(super) fn scan(&mut self, seq: u64, cursor: u64, now: Moment) {
        let linked: Vec<_> = (0..self.nodes.len())
            .filter(|at| self.nodes.get(*at).is_some_and(Node::is_linked))
            .collect();
        let from = usize::try_from(cursor >> NODE_SHIFT).unwrap_or(usize::MAX);
        let at = linked.iter().copied().find(|at| *at >= from);
        if linked.len() < majority(self.nodes.len()) {
            return self.give(seq, Err(self.no_answer()));
        }
        let Some(at) = at else {
            // The nodes that were left can't be reached.
            return self.give(seq, Ok(Answer::Keys { keys: Vec::new(), next: None }));
        };
        let Some(question) = self.questions.get_mut(&seq) else { return };
        let inside = if at == from { cursor & INSIDE } else { 0 };
        let command = Command { verb: Verb::Scan { cursor: inside }, ..question.command.clone() };
        question.command.verb = Verb::Scan { cursor: (at as u64) << NODE_SHIFT };
        self.ask(seq, at, command, now);
    }

    pub(super) fn scanned(&mut self, seq: u64, cursor: u64, answer: Result<Answer, Fault>) {
        let (node, last) = (cursor >> NODE_SHIFT, self.nodes.len() as u64);
        let answer = answer.map(|answer| match answer {
            Answer::Keys { keys, next: Some(next) } => {
                Answer::Keys { keys, next: Some(next & INSIDE | cursor) }
            }
            Answer::Keys { keys, next: None } => {
                let is_more = node + 1 < last;
                Answer::Keys { keys, next: is_more.then_some((node + 1) << NODE_SHIFT) }
            }
            other => other,
        });
        self.give(seq, answer);
    }
}
