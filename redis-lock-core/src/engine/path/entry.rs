//! The entries in the queue of a place, and their outcomes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::LockId;
use super::origin::{AnswerTo, AskedBy, Gathered, Gathering, InHand, Told};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::lock::{Outcome, Outgoing, Question, Reap};
use crate::store::redis::{ClusterMode, NextPart, Part, Split, is_split};
use crate::store::wire::Redirect;
use crate::store::{Answer, Command};
use crate::sync::NonPoisonMutex;

/// One command in the queue.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    entry: SentEntry,
    /// The command; `None` for a release, whose command depends on the time and is created when it
    /// is written.
    pub(crate) command: Option<Command>,
    /// While it is on no queue.
    pub(super) hand: InHand,
}

/// What is kept of an entry until its outcome is known. It is moved often, so it is small.
#[derive(Debug)]
pub(crate) struct SentEntry {
    pub(crate) origin: AskedBy,
    /// When the entry was created.
    pub(crate) sent: Moment,
    /// When it was written to the connection.
    pub(super) written: Moment,
    /// How long the answer may take before the connection is suspected.
    pub(super) limit: Duration,
    /// When the caller gets the error that no answer came in time.
    pub(crate) deadline: Moment,
    /// Whether an `ASKING` is sent before it, because its slot is being moved to the node.
    pub(crate) asks: bool,
    /// How often it was redirected.
    pub(super) hops: u8,
    /// Whether a caller waited for the answer when it was written.
    is_awaited: bool,
    /// Its command, for a planted fault.
    #[cfg(test)]
    pub(super) copy: Option<Command>,
}

impl std::ops::Deref for QueueEntry {
    type Target = SentEntry;

    fn deref(&self) -> &SentEntry {
        &self.entry
    }
}

impl std::ops::DerefMut for QueueEntry {
    fn deref_mut(&mut self) -> &mut SentEntry {
        &mut self.entry
    }
}

impl QueueEntry {
    /// The entry of something that a machine sends.
    pub(crate) fn of(id: &LockId, outgoing: Outgoing, now: Moment) -> Self {
        match outgoing {
            Outgoing::Ask(Question { number, command }) => {
                let origin = AskedBy::Lock(id.clone(), number);
                Self::of_command(origin, command, Moment::NEVER, now)
            }
            Outgoing::Part(reap) => Self::reap(reap, now),
            // Its answer is not needed.
            Outgoing::Message(command) => {
                Self::of_command(AskedBy::Query(None), command, Moment::NEVER, now)
            }
        }
    }

    pub(crate) fn reap(reap: Box<Reap>, now: Moment) -> Self {
        let (limit, deadline) = (reap.timeout(), reap.deadline());
        Self::new(AskedBy::Reap(reap), None, limit, deadline, now)
    }

    pub(crate) fn query(command: Command, reply: AnswerTo, now: Moment) -> Self {
        let deadline = now.after(command.timeout);
        Self::of_command(AskedBy::Query(Some(reply)), command, deadline, now)
    }

    pub(super) fn ping(timeout: Duration, now: Moment) -> Self {
        Self::of_command(AskedBy::Ping, super::ping(timeout), Moment::NEVER, now)
    }

    fn of_command(origin: AskedBy, command: Command, deadline: Moment, now: Moment) -> Self {
        let limit = command.timeout;
        Self::new(origin, Some(command), limit, deadline, now)
    }

    fn new(
        origin: AskedBy,
        command: Option<Command>,
        limit: Duration,
        deadline: Moment,
        now: Moment,
    ) -> Self {
        let entry = SentEntry {
            origin,
            sent: now,
            written: now,
            limit,
            deadline,
            asks: false,
            hops: 0,
            is_awaited: false,
            #[cfg(test)]
            copy: None,
        };
        Self { entry, command, hand: InHand::default() }
    }

    /// The key that decides to which place it goes; `None` when it goes to no place in particular.
    pub(crate) fn main(&self) -> Option<Arc<str>> {
        let of_command = || self.command.as_ref().map(|command| command.names.shared_main());
        self.entry.main().or_else(of_command)
    }

    /// The command to send at `now`.
    pub(crate) fn take_command(&mut self, now: Moment) -> Option<Command> {
        match &self.origin {
            AskedBy::Reap(reap) => Some(reap.command(now)),
            _ => self.command.take(),
        }
    }

    /// Whether it is for keys of several slots.
    pub(crate) fn is_split(&self) -> bool {
        match (&self.origin, &self.command) {
            (AskedBy::Part(..) | AskedBy::Ping, _) => false,
            (AskedBy::Reap(reap), _) => reap.is_split(),
            (_, Some(command)) => is_split(command.kind, &command.names),
            (_, None) => false,
        }
    }

    /// Settles an entry that can't be sent to any place.
    pub(crate) fn refused(self, what: &str) -> Settled {
        self.entry.settle(Outcome::Refused(Fault::new(FaultClass::Refused, what)), self.hand)
    }

    /// Without its command.
    pub(crate) fn into_sent(self) -> SentEntry {
        self.entry
    }
}

impl SentEntry {
    /// The same with its command, to be sent again.
    pub(super) fn with(self, command: Option<Command>, hand: InHand) -> QueueEntry {
        QueueEntry { entry: self, command, hand }
    }

    /// The key of the lock that it is for, if its origin names one.
    pub(super) fn main(&self) -> Option<Arc<str>> {
        match &self.origin {
            AskedBy::Lock(id, _) => Some(Arc::clone(&id.main)),
            AskedBy::Reap(reap) => Some(reap.names().shared_main()),
            AskedBy::Part(..) | AskedBy::Query(_) | AskedBy::Ping => None,
        }
    }

    /// The number of the question, if a machine asked it.
    pub(super) fn number(&self) -> Option<u64> {
        match &self.origin {
            AskedBy::Lock(_, number) => Some(*number),
            _ => None,
        }
    }

    /// Takes out the caller, which gets a time-out. The command stays.
    pub(super) fn overdue(&mut self) -> Option<Told> {
        self.deadline = Moment::NEVER;
        self.origin.overdue()
    }

    pub(super) fn settle(self, outcome: Outcome, hand: InHand) -> Settled {
        let Self { origin, sent, .. } = self;
        Settled::Done { origin, sent, outcome, hand }
    }
}

/// What became of an entry.
#[derive(Debug)]
pub(crate) enum Settled {
    /// It has its one outcome.
    Done { origin: AskedBy, sent: Moment, outcome: Outcome, hand: InHand },
    /// It was not executed, and must be asked elsewhere: at the node that the reply or the map
    /// names.
    Redirected(Box<QueueEntry>, Option<Redirect>),
}

impl Settled {
    /// What it was for.
    pub(crate) fn into_origin(self) -> AskedBy {
        match self {
            Self::Done { origin, .. } => origin,
            Self::Redirected(entry, _) => entry.into_sent().origin,
        }
    }

    /// Whether it is a release that no server has answered yet.
    pub(crate) fn is_owed(&self) -> bool {
        let Self::Done { origin: AskedBy::Reap(reap), outcome, .. } = self else { return false };
        !outcome.is_answered() && !reap.was_answered()
    }

    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Done { origin, .. } => origin.is_awaited(),
            Self::Redirected(..) => false,
        }
    }
}

#[cfg(test)]
impl Settled {
    pub(crate) fn origin(&self) -> &AskedBy {
        match self {
            Self::Done { origin, .. } => origin,
            Self::Redirected(entry, _) => &entry.origin,
        }
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        match self {
            Self::Done { outcome, .. } => outcome,
            Self::Redirected(..) => panic!("it goes elsewhere"),
        }
    }
}

/// The entries that were written and have no outcome, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// An entry that has its outcome leaves a gap, until it comes first.
    entries: VecDeque<Option<SentEntry>>,
    /// The sequence number of the first entry. The others follow without gaps.
    first: u64,
    /// For how many of them a caller waited when they were written.
    awaited: usize,
}

impl InFlight {
    /// The sequence number of the next entry.
    pub(super) fn next_seq(&self) -> u64 {
        self.first.wrapping_add(self.entries.len() as u64)
    }

    pub(super) fn push(&mut self, mut entry: SentEntry) {
        entry.is_awaited = entry.origin.is_awaited();
        self.awaited += usize::from(entry.is_awaited);
        self.entries.push_back(Some(entry));
    }

    /// Whether a caller waits for one of the answers. A caller that got a time-out counts until the
    /// answer comes.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    fn index(&self, seq: u64) -> Option<usize> {
        seq.wrapping_sub(self.first).try_into().ok()
    }

    pub(super) fn get(&self, seq: u64) -> Option<&SentEntry> {
        self.entries.get(self.index(seq)?)?.as_ref()
    }

    pub(super) fn take(&mut self, seq: u64) -> Option<SentEntry> {
        let index = self.index(seq)?;
        let entry = self.entries.get_mut(index)?.take()?;
        self.awaited -= usize::from(entry.is_awaited);
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Some(entry)
    }

    /// The oldest entry without an outcome.
    pub(super) fn front(&self) -> Option<&SentEntry> {
        self.entries.front()?.as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SentEntry> {
        self.entries.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut SentEntry> {
        self.entries.iter_mut().flatten()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = SentEntry> {
        (self.first, self.awaited) = (self.next_seq(), 0);
        std::mem::take(&mut self.entries).into_iter().flatten()
    }
}

/// A part, and the key that decides where it goes.
pub(crate) type PartEntry = (Arc<str>, QueueEntry);

impl Gathering {
    /// Splits an entry for keys of several slots into parts. There may be an outcome at once.
    pub(crate) fn begin(
        mut entry: QueueEntry,
        cluster: &Arc<ClusterMode>,
    ) -> (Vec<PartEntry>, Option<Settled>) {
        let now = entry.sent;
        if let AskedBy::Reap(reap) = &mut entry.origin {
            // Its parts may go to other queues than those of the acquisition that it undoes.
            reap.doubt_dropped(now);
        }
        let Some(command) = entry.take_command(now) else { return (Vec::new(), None) };
        let (split, next) = Split::start(&command, cluster);
        let (sent, deadline) = (now, entry.deadline);
        let (origin, hand) = (Some(entry.entry.origin), entry.hand);
        let gathered = Gathered { split, origin, sent, deadline };
        let gathering = Arc::new(Self(NonPoisonMutex::new(gathered)));
        match next {
            NextPart::Ask(parts) => (gathering.entries(parts), None),
            NextPart::Done(answer) => (Vec::new(), gathering.settle(answer, hand)),
        }
    }

    pub(crate) fn entries(self: &Arc<Self>, parts: Vec<Part>) -> Vec<PartEntry> {
        let (sent, deadline) = {
            let gathered = self.gathered();
            (gathered.sent, gathered.deadline)
        };
        let entry = |part: Part| {
            let main = part.command.names.shared_main();
            let origin = AskedBy::Part(Arc::clone(self), part.group);
            (main, QueueEntry::of_command(origin, part.command, deadline, sent))
        };
        parts.into_iter().map(entry).collect()
    }

    pub(crate) fn settle(&self, answer: Result<Answer, Fault>, hand: InHand) -> Option<Settled> {
        let mut gathered = self.gathered();
        let (origin, sent) = (gathered.origin.take()?, gathered.sent);
        Some(Settled::Done { origin, sent, outcome: answer.into(), hand })
    }
}
