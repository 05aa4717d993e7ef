//! The entries in the queue of a place, their outcomes, and what callers are told.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::engine::lock_id::LockId;
use crate::lock::{Confirm, Confirmation, Outcome, Outgoing, Question, Reap};
use crate::store::groups::{ClusterMode, NextPart, Part, Split, is_split};
use crate::store::wire::Redirect;
use crate::store::{Answer, Command};
use crate::sync::{NonPoisonGuard, NonPoisonMutex};

/// Answers a caller whose command belongs to no machine.
pub(crate) type AnswerTo = oneshot::Sender<Result<Answer, Fault>>;

/// Tells a caller whether the server can be used.
pub(crate) type ReadyReply = oneshot::Sender<Result<(), Fault>>;

/// A caller, and its answer. It is moved from list to list, so large parts are boxed.
#[derive(Debug)]
pub(crate) enum Told {
    Reply(AnswerTo, Box<Result<Answer, Fault>>),
    Ready(ReadyReply, Box<Result<(), Fault>>),
    Release(Confirm, Result<(), Box<LockError>>),
}

impl Told {
    pub(crate) fn reply(reply: AnswerTo, answer: Result<Answer, Fault>) -> Self {
        Self::Reply(reply, Box::new(answer))
    }

    pub(crate) fn ready(reply: ReadyReply, outcome: Result<(), Fault>) -> Self {
        Self::Ready(reply, Box::new(outcome))
    }

    pub(crate) fn release((confirm, outcome): Confirmation) -> Self {
        Self::Release(confirm, outcome.map_err(Box::new))
    }

    /// Tells it. The caller may be gone, which changes nothing.
    pub(crate) fn tell(self) {
        match self {
            Self::Reply(reply, answer) => drop(reply.send(*answer)),
            Self::Ready(reply, outcome) => drop(reply.send(*outcome)),
            Self::Release(confirm, outcome) => {
                drop(confirm.send(outcome.map_err(|error| *error)));
            }
        }
    }
}

/// On whose behalf a command is sent.
#[derive(Debug)]
pub(crate) enum AskedBy {
    /// The machine of a lock, for its question with this number.
    Lock(LockId, u64),
    /// The release of a token.
    Reap(Box<Reap>),
    /// One of several parts, each for the keys of one slot.
    Part(Arc<Gathering>, usize),
    /// A caller that looks at locks; `None` after its time limit has passed.
    Query(Option<AnswerTo>),
    /// The path itself, to check the connection.
    Ping,
}

impl AskedBy {
    /// Whether a caller waits for the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Lock(..) | Self::Query(_) => true,
            Self::Reap(reap) => reap.is_awaited(),
            Self::Part(gathering, _) => gathering.is_awaited(),
            Self::Ping => false,
        }
    }

    /// Takes out the caller, to tell it that no answer came in time.
    pub(crate) fn overdue(&mut self) -> Option<Told> {
        match self {
            Self::Query(reply) => Some(Told::reply(reply.take()?, Err(Fault::no_answer()))),
            Self::Reap(reap) => reap.overdue().map(Told::release),
            Self::Part(gathering, _) => gathering.overdue(),
            Self::Lock(..) | Self::Ping => None,
        }
    }

    /// The token that it releases.
    #[cfg(test)]
    pub(crate) fn leaving(&self) -> Option<Arc<str>> {
        match self {
            Self::Reap(reap) => Some(Arc::clone(reap.attempt().wire())),
            Self::Part(gathering, _) => gathering.gathered().entry.as_ref()?.origin.leaving(),
            Self::Lock(..) | Self::Query(_) | Self::Ping => None,
        }
    }
}

/// A reference to what a path counts its outcomes by that are not handed over; `None` counts as nothing.
pub(crate) type InHand = Option<Arc<()>>;

/// One command, from when it is put on a queue until its outcome is handed over.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) origin: AskedBy,
    pub(crate) state: EntryState,
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
    pub(super) is_awaited: bool,
    /// Set while it is on no queue.
    pub(crate) hand: InHand,
    /// Its command, for a planted fault.
    #[cfg(test)]
    pub(super) copy: Option<Command>,
}

/// How far an entry has come.
///
/// ```text
///   Queued --written--> Written --answered, or its connection has ended--> Settled
///     ^ |                  |                                                  ^
///     | |    another node has its key                                         |
///     | |                  v                                                  |
///     +-|------------ Redirected                                              |
///       +---------- refused, because there is no connection ------------------+
/// ```
#[derive(Debug)]
pub(crate) enum EntryState {
    /// The command; `None` for a release, whose command depends on the time and is created when it
    /// is written.
    Queued(Option<Command>),
    Written,
    /// It was not executed, and must be asked elsewhere: at the node that the reply or the map names.
    Redirected(Option<Command>, Option<Box<Redirect>>),
    /// It has its one outcome.
    Settled(Outcome),
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
        Self {
            origin,
            state: EntryState::Queued(command),
            sent: now,
            written: now,
            limit,
            deadline,
            asks: false,
            hops: 0,
            is_awaited: false,
            hand: None,
            #[cfg(test)]
            copy: None,
        }
    }

    fn command(&self) -> Option<&Command> {
        match &self.state {
            EntryState::Queued(command) | EntryState::Redirected(command, _) => command.as_ref(),
            EntryState::Written | EntryState::Settled(_) => None,
        }
    }

    /// The key that decides to which place it goes; `None` when it goes to no place in particular.
    pub(crate) fn route(&self) -> Option<Arc<str>> {
        self.main().or_else(|| self.command().map(|command| command.names.shared_main()))
    }

    /// Takes out the command, to be written at `now`.
    pub(super) fn write(&mut self, now: Moment) -> Option<Command> {
        self.written = now;
        let before = std::mem::replace(&mut self.state, EntryState::Written);
        match (&self.origin, before) {
            (AskedBy::Reap(reap), _) => Some(reap.command(now)),
            (_, EntryState::Queued(command)) => command,
            _ => None,
        }
    }

    /// Whether it is for keys of several slots.
    pub(crate) fn is_split(&self) -> bool {
        match (&self.origin, self.command()) {
            (AskedBy::Part(..) | AskedBy::Ping, _) => false,
            (AskedBy::Reap(reap), _) => reap.is_split(),
            (_, Some(command)) => is_split(command.kind, &command.names),
            (_, None) => false,
        }
    }

    /// It can't be sent to any place.
    pub(crate) fn refused(self, what: &str) -> Self {
        self.settled(Outcome::Refused(Fault::new(FaultClass::Refused, what)))
    }

    pub(crate) fn settled(mut self, outcome: Outcome) -> Self {
        self.state = EntryState::Settled(outcome);
        self
    }

    /// Another node has its key; `None` where the map says which.
    pub(crate) fn redirected(mut self, command: Option<Command>, to: Option<Redirect>) -> Self {
        self.state = EntryState::Redirected(command, to.map(Box::new));
        self
    }

    /// It goes elsewhere, without having been written.
    pub(super) fn elsewhere(mut self) -> Self {
        let EntryState::Queued(command) = &mut self.state else { return self };
        let command = command.take();
        self.redirected(command, None)
    }

    /// Queues it again. Returns the node that it was redirected to, if a node has named one.
    pub(crate) fn requeue(&mut self) -> Option<Redirect> {
        let before = std::mem::replace(&mut self.state, EntryState::Written);
        let (state, to) = match before {
            EntryState::Redirected(command, to) => (EntryState::Queued(command), to),
            state => (state, None),
        };
        self.state = state;
        to.map(|to| *to)
    }

    /// Whether it is a release that no server has answered yet.
    pub(crate) fn is_owed(&self) -> bool {
        let (AskedBy::Reap(reap), EntryState::Settled(outcome)) = (&self.origin, &self.state)
        else {
            return false;
        };
        !outcome.is_answered() && !reap.was_answered()
    }

    /// Whether a caller gets its outcome.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.state, EntryState::Settled(_)) && self.origin.is_awaited()
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

    #[cfg(test)]
    pub(crate) fn outcome(&self) -> &Outcome {
        match &self.state {
            EntryState::Settled(outcome) => outcome,
            other => panic!("it has no outcome: {other:?}"),
        }
    }
}

/// A part, and the key that decides where it goes.
pub(crate) type PartEntry = (Arc<str>, QueueEntry);

/// A command that was split into parts, until it has its one outcome.
#[derive(Debug)]
pub(crate) struct Gathering(pub(super) NonPoisonMutex<Gathered>);

#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) split: Split,
    /// What was split; `None` once the outcome is known.
    pub(super) entry: Option<QueueEntry>,
}

impl Gathering {
    /// A part has its outcome. Returns the next step, if this was the last missing part.
    pub(crate) fn answered(&self, group: usize, outcome: Outcome) -> Option<NextPart> {
        let mut gathered = self.gathered();
        gathered.split.answered(group, outcome.into());
        gathered.split.next()
    }

    /// The machine that asked, and the number of its question. The outer `None` means that no caller
    /// wants the answer.
    pub(crate) fn asked_by(&self) -> Option<Option<(LockId, u64)>> {
        match &self.gathered().entry.as_ref()?.origin {
            AskedBy::Lock(id, number) => Some(Some((id.clone(), *number))),
            _ => Some(None),
        }
    }

    pub(super) fn gathered(&self) -> NonPoisonGuard<'_, Gathered> {
        self.0.lock()
    }

    /// Takes out the origin, when no thread is left to carry it out.
    pub(crate) fn take_origin(&self) -> Option<AskedBy> {
        self.gathered().entry.take().map(|entry| entry.origin)
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.gathered().entry.as_ref().is_some_and(|entry| entry.origin.is_awaited())
    }

    pub(crate) fn overdue(&self) -> Option<Told> {
        self.gathered().entry.as_mut()?.origin.overdue()
    }

    /// Splits an entry for keys of several slots into parts. There may be an outcome at once.
    pub(crate) fn begin(
        mut entry: QueueEntry,
        cluster: &Arc<ClusterMode>,
    ) -> (Vec<PartEntry>, Option<QueueEntry>) {
        let now = entry.sent;
        if let AskedBy::Reap(reap) = &mut entry.origin {
            // Its parts may go to other queues than those of the acquisition that it undoes.
            reap.doubt_dropped(now);
        }
        let Some(command) = entry.write(now) else { return (Vec::new(), None) };
        let (split, next) = Split::start(&command, cluster);
        // Its parts are on queues from now on.
        let hand = std::mem::take(&mut entry.hand);
        let gathered = Gathered { split, entry: Some(entry) };
        let gathering = Arc::new(Self(NonPoisonMutex::new(gathered)));
        match next {
            NextPart::Ask(parts) => (gathering.entries(parts), None),
            NextPart::Done(answer) => (Vec::new(), gathering.settle(answer, hand)),
        }
    }

    pub(crate) fn entries(self: &Arc<Self>, parts: Vec<Part>) -> Vec<PartEntry> {
        let times = self.gathered().entry.as_ref().map(|entry| (entry.sent, entry.deadline));
        let Some((sent, deadline)) = times else { return Vec::new() };
        let entry = |part: Part| {
            let main = part.command.names.shared_main();
            let origin = AskedBy::Part(Arc::clone(self), part.group);
            (main, QueueEntry::of_command(origin, part.command, deadline, sent))
        };
        parts.into_iter().map(entry).collect()
    }

    pub(crate) fn settle(&self, answer: Result<Answer, Fault>, hand: InHand) -> Option<QueueEntry> {
        let mut entry = self.gathered().entry.take()?;
        entry.hand = hand;
        Some(entry.settled(answer.into()))
    }
}
