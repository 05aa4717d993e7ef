//! What stands in the queue of a place, and what comes of it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::engine::table::LockId;
use crate::lock::{Confirmation, Outcome, Reap};
use crate::store::{Answer, Command};

/// Answers somebody who asked something that belongs to no lock.
pub(crate) type Reply = oneshot::Sender<Result<Answer, Fault>>;

/// On whose behalf something is asked.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The machine of a lock, by a question with this number.
    Lock(LockId, u64),
    /// A token on its way out.
    Reap(Box<Reap>),
    /// Somebody who looks at locks. Gone once they learned that no answer came in time.
    Query(Option<Reply>),
    /// The path itself, to hear whether somebody is there.
    Ping,
}

impl Origin {
    /// Whether somebody waits for the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Lock(..) | Self::Query(_) => true,
            Self::Reap(reap) => reap.is_awaited(),
            Self::Ping => false,
        }
    }
}

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

    /// What nobody wants an answer to.
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
        Self { origin, command, sent: now, written: now, limit, deadline }
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
    pub(super) fn take_command(&mut self, now: Moment) -> Option<Command> {
        match &self.origin {
            Origin::Reap(reap) => Some(reap.command(now)),
            _ => self.command.take(),
        }
    }

    /// Lets whoever waits learn that no answer came in time. The question goes on.
    pub(super) fn overdue(&mut self) -> Option<Overdue> {
        self.deadline = Moment::NEVER;
        match &mut self.origin {
            Origin::Query(reply) => reply.take().map(|reply| {
                let what = "the server did not answer in time";
                Overdue::Query(reply, Fault::new(FaultClass::Late, what))
            }),
            Origin::Reap(reap) => reap.overdue().map(Overdue::Release),
            Origin::Lock(..) | Origin::Ping => None,
        }
    }

    pub(super) fn settle(self, outcome: Outcome) -> Settled {
        Settled { origin: self.origin, sent: self.sent, outcome }
    }
}

/// Somebody who was promised an answer by now.
#[derive(Debug)]
pub(crate) enum Overdue {
    Query(Reply, Fault),
    Release(Confirmation),
}

/// A question and its one outcome.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) origin: Origin,
    pub(crate) sent: Moment,
    pub(crate) outcome: Outcome,
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

    pub(super) fn get(&self, seq: u64) -> Option<&QueueEntry> {
        let index = self.entries.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        self.entries.get(index)?.1.as_ref()
    }

    pub(super) fn take(&mut self, seq: u64) -> Option<QueueEntry> {
        let index = self.entries.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
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
