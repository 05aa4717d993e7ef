//! The path to one place: a queue of entries, the connection, and its supervision.
//!
//! All commands for a lock go through the queue of its place, so those of different threads reach
//! the server in the order in which they were put there, even after a reconnect. Decisions
//! are made here without I/O: the driver of a path carries out its [`Job`]s and passes the time in.
//!
//! ```text
//!   Unused --first question--> Connecting --connected--> Up --closed--> Connecting
//!                                  |  ^                                     |
//!                             failed  | (retry after a pause)               |
//!                                  v  |                                     |
//!                                 Down: what is asked is refused at once <--+ (failed)
//! ```
//!
//! An epoch is the lifetime of one connection. It ends in one way, [`Traffic::close`]: entries that
//! were written get an unknown outcome, and entries that were not stay queued, in order, for the
//! next epoch. The socket is closed with the epoch, so no answer can come later.

mod entry;
mod exchange;
mod queue;
mod supervise;
#[cfg(test)]
mod tests;

pub(crate) use entry::{AskedBy, EntryState, Gathering, InHand, QueueEntry, ReadyReply, Told};
pub(crate) use exchange::After;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::engine::reader::ReaderRole;
use crate::lock::{Outcome, Reap};
use crate::store::{Command, LEAST_SILENCE, Verb, Wire};
use crate::sync::{NonPoisonGuard, NonPoisonMutex};
use queue::Queue;
use supervise::Attempts;

/// How many dropped questions are remembered before settled ones are removed.
const MIN_DROPPED_SWEEP: usize = 1024;

/// The shortest time between two reads of the map, whatever the nodes say.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// What happened to the connection, for those who drive the path.
#[derive(Debug)]
pub(crate) enum News {
    /// A connection was made.
    Up,
    /// The server can't be reached, or is silent. It is tried again.
    Unreachable(Fault),
}

/// The results of driving a path.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Entries that are settled, or redirected.
    pub(crate) settled: Vec<QueueEntry>,
    /// What callers learn.
    pub(crate) told: Vec<Told>,
    pub(crate) news: Vec<News>,
    /// The numbers under which the driver of the path has to connect, and to report the result.
    pub(crate) connects: Vec<u64>,
}

/// The queue and the connection of one place.
pub(crate) struct Path(NonPoisonMutex<Traffic>);

pub(crate) struct Traffic {
    connection: ConnectionState,
    pub(crate) role: ReaderRole,
    queue: Queue,
    dropped: DroppedQuestions,
    /// Each outcome that is not handed over refers to it.
    in_hand: Arc<()>,
    ready: Vec<ReadyReply>,
    time_limit: Duration,
    attempts: Attempts,
    /// The earliest time limit of a caller.
    deadline_check: Moment,
    /// Answers that took longer have an unknown outcome, and neither start nor lengthen a lease.
    distrust_after: Option<Duration>,
}

/// Questions that their machines have dropped.
#[derive(Default)]
struct DroppedQuestions {
    /// Those that have no outcome. No further round of them is sent.
    numbers: BTreeSet<u64>,
    /// At how many of them to look for those that are settled.
    limit: usize,
    /// Questions whose outcome became unknown: their machines may not have been notified yet.
    lost: BTreeSet<u64>,
    /// The keys of dropped questions whose outcome became unknown, until the waiting releases learn
    /// of it.
    doubtful: BTreeSet<Arc<str>>,
}

impl DroppedQuestions {
    /// Whether an entry is such a question.
    fn has(&self, entry: &QueueEntry) -> bool {
        entry.number().is_some_and(|number| self.numbers.contains(&number))
    }

    /// The same, for a question that is settled now.
    fn take(&mut self, entry: &QueueEntry) -> bool {
        entry.number().is_some_and(|number| self.numbers.remove(&number))
    }
}

enum ConnectionState {
    Unused,
    /// A connection is being made, and nothing is known to be wrong.
    Connecting,
    Up(Up),
    /// The last try failed. Another one follows.
    Down(Fault),
    /// The path is closed: the node has no keys left.
    Retired,
}

struct Up {
    wire: Box<dyn Wire>,
    epoch: u64,
    made: Moment,
    /// When bytes were last received.
    received: Moment,
    /// Whether it has ever answered a command.
    has_answered: bool,
    /// Whether the server has said that it must not be asked, as a replica does.
    turned_away: bool,
}

impl Path {
    pub(crate) fn new(time_limit: Duration, spread: u8) -> Self {
        let traffic = Traffic {
            connection: ConnectionState::Unused,
            role: ReaderRole::default(),
            queue: Queue::default(),
            dropped: DroppedQuestions::default(),
            in_hand: Arc::default(),
            ready: Vec::new(),
            time_limit: time_limit.max(LEAST_SILENCE),
            attempts: Attempts::new(spread),
            deadline_check: Moment::NEVER,
            distrust_after: None,
        };
        Self(NonPoisonMutex::new(traffic))
    }

    pub(crate) fn traffic(&self) -> NonPoisonGuard<'_, Traffic> {
        self.0.lock()
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    /// Puts an entry on the queue. To be called under the lock of the machine's shard, so that the
    /// order in the queue is that of the steps.
    pub(crate) fn put(&self, entry: QueueEntry, results: &mut Vec<QueueEntry>) {
        self.traffic().put(entry, results);
    }
}

impl Traffic {
    pub(crate) fn put(&mut self, mut entry: QueueEntry, results: &mut Vec<QueueEntry>) {
        let sent = entry.sent;
        if let AskedBy::Reap(reap) = &mut entry.origin
            && let Some(number) = reap.dropped_question()
        {
            self.drop_question(number, reap, sent);
        }
        match &self.connection {
            ConnectionState::Down(fault) => {
                let fault = fault.clone();
                return self.settle(entry, Outcome::Refused(fault), results);
            }
            ConnectionState::Retired => {
                entry.hand = Some(Arc::clone(&self.in_hand));
                return results.push(entry.elsewhere());
            }
            ConnectionState::Unused | ConnectionState::Connecting | ConnectionState::Up(_) => {}
        }
        self.deadline_check = self.deadline_check.min(entry.deadline);
        let hand = std::mem::take(&mut entry.hand);
        self.queue.put(entry);
        drop(hand);
    }

    /// The machine of a question no longer wants it, and releases its token.
    fn drop_question(&mut self, number: u64, reap: &mut Reap, now: Moment) {
        if self.dropped.lost.remove(&number) {
            // Its outcome was not known when it was dropped.
            return reap.doubt(now);
        }
        self.dropped.numbers.insert(number);
        if self.dropped.numbers.len() > self.dropped.limit.max(MIN_DROPPED_SWEEP) {
            self.forget_dropped();
            self.dropped.limit = self.dropped.numbers.len() * 2;
        }
    }

    fn settle(&mut self, mut entry: QueueEntry, outcome: Outcome, results: &mut Vec<QueueEntry>) {
        if let Some(number) = entry.number() {
            let is_unknown = matches!(outcome, Outcome::Unknown(_));
            if self.dropped.take(&entry) && !planted!(AnyAnswer) {
                // Its token is being released; no caller wants to know.
                self.dropped.doubtful.extend(entry.main().filter(|_| is_unknown));
                return;
            }
            if is_unknown {
                self.dropped.lost.insert(number);
            }
        }
        entry.hand = Some(Arc::clone(&self.in_hand));
        results.push(entry.settled(outcome));
    }

    /// The outcomes of some questions are unknown, so the server may execute them after the releases of
    /// their keys that were not sent yet. They leave a tombstone. To be called before anything is sent.
    fn doubt_waiting(&mut self) {
        let doubtful = std::mem::take(&mut self.dropped.doubtful);
        if doubtful.is_empty() {
            return;
        }
        let now = Moment::now();
        for entry in self.queue.waiting_mut() {
            if let AskedBy::Reap(reap) = &mut entry.origin
                && doubtful.contains(&reap.names().shared_main())
            {
                reap.doubt(now);
            }
        }
    }

    /// The machine of a question was notified that its outcome is unknown.
    pub(crate) fn unknown_reported(&mut self, number: u64) {
        self.dropped.lost.remove(&number);
    }

    /// Ends the epoch, if there is one: the one way in which a connection ends.
    pub(crate) fn close(&mut self, fault: &Fault, results: &mut Vec<QueueEntry>) {
        let before = std::mem::replace(&mut self.connection, ConnectionState::Connecting);
        let ConnectionState::Up(up) = before else {
            self.connection = before;
            return;
        };
        self.closed(&up);
        drop(up);
        while let Some(entry) = self.queue.pop_written() {
            self.settle(entry, Outcome::Unknown(fault.clone()), results);
        }
        self.doubt_waiting();
        self.forget_dropped();
    }

    /// Forgets the numbers of dropped questions that are settled.
    fn forget_dropped(&mut self) {
        let known: BTreeSet<_> = self.queue.all().filter_map(QueueEntry::number).collect();
        self.dropped.numbers.retain(|number| known.contains(number));
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        match &self.connection {
            ConnectionState::Up(up) => Some(up.epoch),
            _ => None,
        }
    }

    /// How old the oldest question without an outcome is.
    pub(crate) fn age(&self, now: Moment) -> Duration {
        self.queue.oldest().map_or(Duration::ZERO, |entry| now.since(entry.written))
    }

    /// At which age an answer is late. The engine reads a late one before a caller whose question was written at once
    /// gives up, and before the connection counts as silent.
    pub(crate) fn late_after(&self) -> Duration {
        let limit = self.queue.oldest().map_or(self.time_limit, |entry| entry.limit);
        let half = limit.min(self.time_limit) / 2;
        self.role.late_after().min(half).max(Duration::from_millis(1))
    }

    /// Whether a command was sent that has no outcome.
    pub(crate) fn has_written(&self) -> bool {
        self.queue.has_written()
    }

    /// Whether outcomes were taken out and not handed over yet.
    pub(crate) fn is_in_hand(&self) -> bool {
        Arc::strong_count(&self.in_hand) > 1
    }

    /// Whether outcomes are in hand, or releases are not done everywhere.
    pub(crate) fn is_left(&self) -> bool {
        let owes = matches!(&self.connection, ConnectionState::Up(up) if up.wire.owes_releases());
        owes || self.is_in_hand()
    }

    /// As if an outcome were taken out.
    #[cfg(test)]
    pub(crate) fn take_in_hand(&self) -> InHand {
        Some(Arc::clone(&self.in_hand))
    }

    /// Whether something other than our own PING is on the queue or on its way.
    pub(crate) fn has_questions(&self) -> bool {
        self.queue.all().any(|entry| !matches!(entry.origin, AskedBy::Ping))
    }

    /// Whether no entry is queued or without an outcome.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.queue.all().next().is_none() && !self.has_dropped()
    }

    #[cfg(test)]
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped.numbers.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn origins(&self) -> impl Iterator<Item = &AskedBy> {
        self.queue.all().map(|entry| &entry.origin)
    }

    /// The number of the question in the entry with this one, if it was written and has no outcome.
    #[cfg(test)]
    pub(crate) fn asked_as(&self, seq: u64) -> Option<u64> {
        self.queue.get(seq)?.number()
    }

    /// Removes all entries, because no thread is left to send them. Dropping the returned values wakes
    /// the callers, so no lock may be held then.
    pub(crate) fn drain(&mut self) -> (Vec<QueueEntry>, Vec<ReadyReply>) {
        // One that is down stays so: after the end of the engine nothing may wait here.
        if !matches!(self.connection, ConnectionState::Down(_)) {
            self.connection = ConnectionState::Unused;
        }
        self.role.depose();
        self.attempts.give_up();
        let ready = std::mem::take(&mut self.ready);
        self.dropped.numbers.clear();
        self.dropped.lost.clear();
        let mut all: Vec<_> = std::iter::from_fn(|| self.queue.pop_written()).collect();
        all.extend(self.queue.take_waiting());
        (all, ready)
    }

    /// Does that for good: new entries are refused at once.
    pub(crate) fn end(&mut self) -> (Vec<QueueEntry>, Vec<ReadyReply>) {
        let drained = self.drain();
        self.connection = ConnectionState::Down(Fault::stopped());
        drained
    }
}

fn ping(timeout: Duration) -> Command {
    let names = Names::new("", String::new());
    Command { names, kind: Kind::Mutex, verb: Verb::Ping, timeout }
}
