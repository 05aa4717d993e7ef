//! The entries in the queue of a place, and their outcomes.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::in_hand::InHand;
use super::origin::{Gathering, Origin, Overdue, Reply};
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::engine::table::LockId;
use crate::lock::{Confirmation, Outcome, Outgoing, Reap};
use crate::store::Command;
use crate::store::redirect::Redirect;
use crate::store::redis::is_split;

/// One command in the queue, or sent and without an outcome.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) origin: Origin,
    /// The command; `None` for a release, whose command depends on the time and is created when it
    /// is written.
    pub(crate) command: Option<Command>,
    /// When the entry was created.
    pub(crate) sent: Moment,
    /// When it was written to the connection.
    pub(super) written: Moment,
    /// How long the answer may take before the connection is suspected.
    pub(super) limit: Duration,
    /// When the caller is told that no answer came in time.
    pub(super) deadline: Moment,
    /// Whether an `ASKING` is sent before it, because its slot is being moved to the node.
    pub(crate) asks: bool,
    /// How often it was redirected.
    pub(super) hops: u8,
    /// The thread that put it on the queue and does nothing else until it is answered.
    pub(super) blocks: Option<NonZeroU64>,
    /// While it is on no queue.
    pub(super) hand: InHand,
}

impl QueueEntry {
    /// The entry of something that a machine sends.
    pub(crate) fn of(id: &LockId, outgoing: Outgoing, now: Moment) -> Self {
        match outgoing {
            Outgoing::Ask(question) => {
                Self::question(id.clone(), question.number, question.command, now)
            }
            Outgoing::Part(reap) => Self::reap(reap, now),
            Outgoing::Message(command) => Self::message(command, now),
        }
    }

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

    /// A part of an entry that was created at `sent`.
    pub(crate) fn part(
        gathering: Arc<Gathering>,
        group: usize,
        command: Command,
        (sent, deadline): (Moment, Moment),
    ) -> Self {
        let limit = command.timeout;
        Self::new(Origin::Part(gathering, group), Some(command), limit, deadline, sent)
    }

    /// A message, whose answer nobody needs.
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
        let (asks, hops, blocks, hand) = (false, 0, None, InHand::default());
        Self { origin, command, sent: now, written: now, limit, deadline, asks, hops, blocks, hand }
    }

    /// The key that decides to which place it goes; `None` when it goes to no place in particular.
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

    /// Whether it is a release that was tried before.
    pub(super) fn is_another_try(&self) -> bool {
        matches!(&self.origin, Origin::Reap(reap) if reap.was_tried())
    }

    /// The number of the question, if a machine asked it.
    pub(super) fn number(&self) -> Option<u64> {
        match &self.origin {
            Origin::Lock(_, number) => Some(*number),
            _ => None,
        }
    }

    /// The command to send at `now`.
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

    /// Settles an entry that can't be sent to any place.
    pub(crate) fn refused(self, what: &str) -> Settled {
        self.settle(Outcome::Refused(Fault::new(FaultClass::Refused, what)))
    }

    /// Takes out the caller, to tell it that no answer came in time. The command goes on.
    pub(super) fn overdue(&mut self) -> Option<Overdue> {
        self.deadline = Moment::NEVER;
        self.origin.overdue()
    }

    pub(super) fn settle(self, outcome: Outcome) -> Settled {
        Settled::Done { origin: self.origin, sent: self.sent, outcome, hand: self.hand }
    }
}

/// What became of an entry.
#[derive(Debug)]
pub(crate) enum Settled {
    /// It has its one outcome.
    Done { origin: Origin, sent: Moment, outcome: Outcome, hand: InHand },
    /// It was not executed, and is to be asked elsewhere: where the node says, or the map.
    Redirected(Box<QueueEntry>, Option<Redirect>),
    /// It is a release that has failed, and it has its next place.
    Failed(Box<FailedRelease>),
}

/// What is to be told of a release that has failed. The release itself has its next place.
#[derive(Debug)]
pub(crate) struct FailedRelease {
    pub(crate) key: String,
    pub(crate) fault: Fault,
    pub(crate) confirmation: Option<Confirmation>,
    /// When it is tried again; `None` when it is in the queue.
    pub(crate) due: Option<Moment>,
}

impl Settled {
    /// What it was for, unless that has another place already.
    pub(crate) fn into_origin(self) -> Result<Origin, Box<FailedRelease>> {
        match self {
            Self::Done { origin, .. } => Ok(origin),
            Self::Redirected(entry, _) => Ok(entry.origin),
            Self::Failed(failed) => Err(failed),
        }
    }

    /// Whether it is a release that no server has answered yet.
    pub(crate) fn is_owed(&self) -> bool {
        match self {
            Self::Done { outcome: Outcome::Answered(_), .. }
            | Self::Redirected(..)
            | Self::Failed(_) => false,
            Self::Done { origin, .. } => origin.is_first_release(),
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Done { origin, .. } => origin.is_awaited(),
            Self::Redirected(..) => false,
            Self::Failed(failed) => failed.confirmation.is_some(),
        }
    }
}

#[cfg(test)]
impl Settled {
    pub(crate) fn origin(&self) -> &Origin {
        match self {
            Self::Done { origin, .. } => origin,
            Self::Redirected(entry, _) => &entry.origin,
            Self::Failed(failed) => panic!("{failed:?}"),
        }
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        match self {
            Self::Done { outcome, .. } => outcome,
            Self::Redirected(..) => panic!("it goes elsewhere"),
            Self::Failed(failed) => panic!("{failed:?}"),
        }
    }
}

/// The entries that were written and have no outcome, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    entries: VecDeque<(u64, Option<QueueEntry>)>,
    count: usize,
    seq: u64,
}

impl InFlight {
    /// The sequence number of the next entry.
    pub(super) fn next_seq(&self) -> u64 {
        self.seq
    }

    pub(super) fn push(&mut self, entry: QueueEntry) {
        self.entries.push_back((self.seq, Some(entry)));
        self.seq = self.seq.wrapping_add(1);
        self.count += 1;
    }

    /// Sequence numbers have no gaps, because entries are removed only at the front.
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

    /// The oldest entry without an outcome.
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
