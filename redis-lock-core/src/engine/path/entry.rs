//! What stands in the queue of a place, and what comes of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::in_hand::InHand;
use super::origin::{Gathering, Origin, Overdue, Reply};
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::engine::table::LockId;
use crate::lock::{Outcome, Reap};
use crate::store::Command;
use crate::store::redirect::Redirect;
use crate::store::redis::is_split;

/// One question in the queue, or on its way.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) origin: Origin,
    /// What to send. A release is made when it is written, because what it asks for depends on the
    /// time.
    pub(crate) command: Option<Command>,
    /// When it was made.
    pub(crate) sent: Moment,
    /// When it was written.
    pub(super) written: Moment,
    /// How long an answer may take before somebody doubts the connection.
    pub(super) limit: Duration,
    /// When whoever asked learns that no answer came.
    pub(super) deadline: Moment,
    /// Whether the node is to be told that its key is on its way to it.
    pub(crate) asks: bool,
    /// How many nodes have sent it elsewhere.
    pub(super) hops: u8,
    /// While it is on no queue.
    pub(super) hand: InHand,
}

impl QueueEntry {
    pub(crate) fn question(id: LockId, number: u64, command: Command, now: Moment) -> Self {
        let limit = command.timeout;
        Self::new(Origin::Lock(id, number), Some(command), limit, Moment::NEVER, now)
    }

    pub(crate) fn reap(reap: Box<Reap>, now: Moment) -> Self {
        let (limit, deadline) = (reap.timeout(), reap.deadline());
        Self::new(Origin::Reap(reap), None, limit, deadline, now)
    }

    pub(crate) fn query(command: Command, reply: Reply, now: Moment) -> Self {
        let limit = command.timeout;
        Self::new(Origin::Query(Some(reply)), Some(command), limit, now.after(limit), now)
    }

    /// A part of what was made at `sent`.
    pub(crate) fn part(
        gathering: Arc<Gathering>,
        group: usize,
        command: Command,
        (sent, deadline): (Moment, Moment),
    ) -> Self {
        let limit = command.timeout;
        Self::new(Origin::Part(gathering, group), Some(command), limit, deadline, sent)
    }

    /// A message, to which nobody wants an answer.
    pub(crate) fn message(command: Command, now: Moment) -> Self {
        let limit = command.timeout;
        Self::new(Origin::Query(None), Some(command), limit, Moment::NEVER, now)
    }

    pub(super) fn ping(command: Command, now: Moment) -> Self {
        let limit = command.timeout;
        Self::new(Origin::Ping, Some(command), limit, Moment::NEVER, now)
    }

    fn new(
        origin: Origin,
        command: Option<Command>,
        limit: Duration,
        deadline: Moment,
        now: Moment,
    ) -> Self {
        let (asks, hops, hand) = (false, 0, InHand::default());
        Self { origin, command, sent: now, written: now, limit, deadline, asks, hops, hand }
    }

    /// The key that says which place it goes to, where it goes to one.
    pub(crate) fn main(&self) -> Option<Arc<str>> {
        match (&self.origin, &self.command) {
            (Origin::Lock(id, _), _) => Some(Arc::clone(&id.main)),
            (Origin::Reap(reap), _) => Some(reap.names().shared_main()),
            (_, Some(command)) => Some(command.names.shared_main()),
            (_, None) => None,
        }
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.origin.is_awaited()
    }

    /// The number of the question, where a machine asked it.
    pub(super) fn number(&self) -> Option<u64> {
        match &self.origin {
            Origin::Lock(_, number) => Some(*number),
            _ => None,
        }
    }

    /// The command as it goes out at `now`.
    pub(crate) fn take_command(&mut self, now: Moment) -> Option<Command> {
        match &self.origin {
            Origin::Reap(reap) => Some(reap.command(now)),
            _ => self.command.take(),
        }
    }

    /// Whether it is for keys of several slots.
    pub(crate) fn is_split(&self) -> bool {
        match (&self.origin, &self.command) {
            (Origin::Part(..) | Origin::Ping, _) => false,
            (Origin::Reap(reap), _) => reap.is_split(),
            (_, Some(command)) => is_split(command.kind, &command.names),
            (_, None) => false,
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// It can't be asked anywhere.
    pub(crate) fn refused(self, what: &str) -> Settled {
        self.settle(Outcome::Refused(Fault::new(FaultClass::Refused, what)))
    }

    /// Lets whoever waits learn that no answer came in time. The question goes on.
    pub(super) fn overdue(&mut self) -> Option<Overdue> {
        self.deadline = Moment::NEVER;
        self.origin.overdue()
    }

    pub(super) fn settle(self, outcome: Outcome) -> Settled {
        Settled::Done { origin: self.origin, sent: self.sent, outcome, hand: self.hand }
    }
}

/// What became of a question.
#[derive(Debug)]
pub(crate) enum Settled {
    /// It has its one outcome.
    Done { origin: Origin, sent: Moment, outcome: Outcome, hand: InHand },
    /// It was not executed, and is to be asked elsewhere: where the node says, or the map.
    Elsewhere(Box<QueueEntry>, Option<Redirect>),
}

impl Settled {
    pub(crate) fn into_origin(self) -> Origin {
        match self {
            Self::Done { origin, .. } => origin,
            Self::Elsewhere(entry, _) => entry.origin,
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Done { origin, .. } => origin.is_awaited(),
            Self::Elsewhere(..) => false,
        }
    }
}

#[cfg(test)]
impl Settled {
    pub(crate) fn origin(&self) -> &Origin {
        match self {
            Self::Done { origin, .. } => origin,
            Self::Elsewhere(entry, _) => &entry.origin,
        }
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        match self {
            Self::Done { outcome, .. } => outcome,
            Self::Elsewhere(..) => panic!("it goes elsewhere"),
        }
    }
}

/// What was written and has had no outcome, in the order of the wire.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    entries: VecDeque<(u64, Option<QueueEntry>)>,
    count: usize,
    seq: u64,
}

impl InFlight {
    /// The name that the next entry will have.
    pub(super) fn next_seq(&self) -> u64 {
        self.seq
    }

    pub(super) fn push(&mut self, entry: QueueEntry) {
        self.entries.push_back((self.seq, Some(entry)));
        self.seq = self.seq.wrapping_add(1);
        self.count += 1;
    }

    /// Names follow each other without a gap, because only the front is ever removed.
    fn index(&self, seq: u64) -> Option<usize> {
        let (first, _) = self.entries.front()?;
        seq.wrapping_sub(*first).try_into().ok()
    }

    pub(super) fn get(&self, seq: u64) -> Option<&QueueEntry> {
        self.entries.get(self.index(seq)?)?.1.as_ref()
    }

    pub(super) fn take(&mut self, seq: u64) -> Option<QueueEntry> {
        let index = self.index(seq)?;
        let entry = self.entries.get_mut(index)?.1.take()?;
        self.count -= 1;
        while matches!(self.entries.front(), Some((_, None))) {
            self.entries.pop_front();
        }
        Some(entry)
    }

    /// The oldest that has had no outcome.
    pub(super) fn front(&self) -> Option<&QueueEntry> {
        self.entries.front()?.1.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.iter().filter_map(|(_, entry)| entry.as_ref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueueEntry> {
        self.entries.iter_mut().filter_map(|(_, entry)| entry.as_mut())
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = QueueEntry> {
        self.count = 0;
        std::mem::take(&mut self.entries).into_iter().filter_map(|(_, entry)| entry)
    }
}
