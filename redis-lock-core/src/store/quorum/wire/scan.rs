//! Lists the keys of all nodes.

use super::super::ballot::majority;
use super::super::node::Node;
use super::QuorumWire;
use crate::domain::clock::Moment;
use crate::domain::error::Fault;
use crate::store::{Answer, Command, Verb};

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
        let (Some(question), Some(at)) = (self.questions.get_mut(&seq), at) else { return };
        if linked.len() < majority(self.nodes.len()) {
            return;
        }
        let inside = if at == from { cursor & INSIDE } else { 0 };
        let command = Command { verb: Verb::Scan { cursor: inside }, ..question.command.clone() };
        if let Some(node) = self.nodes.get_mut(at)
            && node.push(command, Some(seq), now)
        {
            question.under_way += 1;
            question.command.verb = Verb::Scan { cursor: (at as u64) << NODE_SHIFT };
        }
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
