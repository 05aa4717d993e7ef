//! What the engine needs of an arbiter: connections, as the queue of a place drives them, and a map of nodes.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Answer, Command, Event, TaskWaker};
use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::sync::NonPoisonMutex;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One connection. None of its methods blocks, and any thread may use it, one at a time. Commands
/// for one lock are executed in the order in which they are pushed.
pub(crate) trait Wire: Send {
    /// Adds a command to the output buffer. `seq` identifies it in the results.
    fn push(&mut self, seq: u64, command: Command);

    /// The same with an `ASKING` before it, for a key whose slot is being moved to this node.
    fn push_asking(&mut self, seq: u64, command: Command) {
        self.push(seq, command);
    }

    /// Sends what can be sent now.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether the output buffer is empty.
    fn is_flushed(&self) -> bool;

    /// Takes in what has arrived.
    fn fill(&mut self) -> io::Result<Filled>;

    /// Ready when something may have arrived, or when more of what is unsent can be sent. Only the task
    /// that polled last is woken. The first poll registers the wire with the current runtime.
    ///
    /// # Errors
    /// When it can't be registered, or its runtime shuts down. A later poll tries again.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    /// Another runtime polls from now on. It reads before its first poll.
    fn unwatch(&mut self) {}

    /// The next command that has its outcome, if there is one. A command may take several rounds,
    /// during which later commands are answered; `wants` says whether the caller still wants
    /// another round.
    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled>;

    /// Since when answers are owed on this connection itself, and not on others that it uses, so that
    /// its silence means something; `oldest` is when the oldest command without an answer was pushed.
    fn owes_since(&self, oldest: Moment) -> Option<Moment> {
        Some(oldest)
    }

    /// When something that it expects must have arrived, so that [`fill`](Self::fill) must be called
    /// again.
    fn due(&self) -> Moment {
        Moment::NEVER
    }

    /// Whether a release whose outcome is known has yet to reach one of several servers.
    fn owes_releases(&self) -> bool {
        false
    }

    /// Whether commands are executed as they are pushed, so that their answers are there at once.
    fn is_instant(&self) -> bool {
        false
    }
}

/// What came of an attempt to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filled {
    /// Whether something arrived.
    pub(crate) received: bool,
    /// Whether there may be more to read.
    pub(crate) more: bool,
}

/// What [`Wire::pull`] reports.
#[derive(Debug)]
pub(crate) enum Pulled {
    /// A command has its outcome. A fault means that it was certainly not executed, unless the
    /// fault says that the outcome is unknown.
    Done(u64, Result<Answer, Fault>),
    /// A command was certainly not executed, because another node has its key.
    Redirected(u64, Command, Redirect),
    /// The connection can't be used any longer: answers can't be matched to commands, or it leads
    /// to a server that must not be asked.
    Broken(Fault),
}

/// A connection that is authenticated and ready for commands.
pub(crate) type Connected = Box<dyn Wire>;

/// What a task has received for the reader.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    items: NonPoisonMutex<VecDeque<T>>,
    news: TaskWaker,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: NonPoisonMutex::default(), news: TaskWaker::default() }
    }
}

impl<T> Inbox<T> {
    pub(crate) fn put(&self, item: T) {
        self.items.lock().push_back(item);
        self.news.wake();
    }

    pub(crate) fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.items.lock())
    }

    /// Has the reader look although nothing has come.
    pub(crate) fn wake(&self) {
        self.news.wake();
    }

    /// Ready when something may have come.
    pub(crate) fn poll_news(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.news.poll_woken(context).map(Ok)
    }
}

/// Receives the events of one place.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    place: u64,
    events: mpsc::UnboundedSender<(u64, Event)>,
}

impl Hints {
    /// Sends the events of a place, with its number, to this receiver.
    pub(crate) fn new(place: u64, events: mpsc::UnboundedSender<(u64, Event)>) -> Self {
        Self { place, events }
    }

    /// Returns `false` when the receiver is gone.
    pub(crate) fn send(&self, event: Event) -> bool {
        self.events.send((self.place, event)).is_ok()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}

/// Knows the address and the credentials of one arbiter, and makes connections to it.
pub(crate) trait Connector: Send + Sync {
    /// Connects, authenticates and finds out what the server can do. It is polled on the engine's
    /// runtime, and the caller limits the time.
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>>;

    /// A connection that needs no waiting: to this process's memory.
    fn connect_at_once(&self) -> Option<Connected> {
        None
    }

    /// Listens for hints until the subscription ends, and returns why it ended. It sends
    /// `Listening` once the subscription works.
    fn listen(&self, hints: Hints) -> BoxFuture<'static, Fault>;
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A subscription that ends sooner than this counts as failed.
const SHORT_LIFE: Duration = Duration::from_secs(2);

/// Subscribes again whenever the subscription ends, until the connection beside it ends. Says why none
/// can be made, if `warns`.
pub(crate) async fn keep_listening(connector: Arc<dyn Connector>, hints: Hints, warns: bool) {
    let (mut pause, mut may_warn) = (FIRST_PAUSE, warns);
    loop {
        let since = Instant::now();
        let why = connector.listen(hints.clone()).await;
        // This task ends with the engine, so a closed channel needs no handling.
        hints.send(Event::Listening { hints_enabled: false });
        if since.elapsed() >= SHORT_LIFE {
            (pause, may_warn) = (FIRST_PAUSE, warns);
            continue;
        }
        // Every waiter looks at its lock after each subscription, so this must not happen in a
        // tight loop.
        if std::mem::take(&mut may_warn) {
            crate::observe::log::not_listening(&why.what);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What the log says of a panic of ours.
pub(crate) const BUG: &str = "redis-locks failed: this is a bug, please report it with the message of \
                              the panic on standard error and the versions of this crate and of the \
                              server";

/// Reads, or decides about, what a server sent, or steps the machine of a lock. That must not panic.
/// Should it do so, it costs this one answer or this one lock, and not the engine with everything that
/// the process holds.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        crate::observe::log::bug(BUG);
        bug()
    })
}

/// Why a command is dropped instead of sent.
pub(crate) const UNWANTED: &str = "no caller wants the lock any more";

/// What connections say of commands without an answer.
impl Fault {
    /// It may be executed yet.
    pub(crate) fn no_answer() -> Self {
        Self::new(FaultClass::Late, "the server did not answer in time")
    }

    /// What was sent may have been executed.
    pub(crate) fn broken(error: &io::Error) -> Self {
        Self::new(FaultClass::Unknown, format!("the connection broke: {error}"))
    }

    pub(crate) fn no_connection(limit: Duration) -> Self {
        let what = format!("the server can't be used: no connection within {limit:?}");
        Self::new(FaultClass::Refused, what).of(BackendErrorKind::Unreachable)
    }

    pub(crate) fn stopped() -> Self {
        Self::new(FaultClass::Refused, "the engine stopped")
    }

    /// Another round would overtake the release of its token.
    pub(crate) fn unwanted() -> Self {
        Self::new(FaultClass::Refused, UNWANTED)
    }
}

/// The text that a caller gets for a panic of ours.
pub(crate) fn bug() -> Fault {
    Fault::new(FaultClass::Permanent, BUG).of(BackendErrorKind::Protocol)
}

/// A node's name: the address that it announces, as `host:port`.
pub(crate) type NodeName = Arc<str>;

/// Says that a command was certainly not executed, and which node to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Redirect {
    /// Another node has the slot.
    Moved { slot: u16, to: NodeName },
    /// Another node has this key while its slot moves there. Ask it with `ASKING`.
    Ask { to: NodeName },
}

/// Which primary had which slots when the nodes were asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Map {
    /// The map with the larger epoch is the newer one. Of two maps with the same epoch, the one
    /// that was asked for later is newer.
    pub(crate) epoch: u64,
    /// Whether every node that was asked says that it serves its slots.
    pub(crate) is_healthy: bool,
    /// Whether nodes contradict each other about who has which slots, so that a part of it may be
    /// over.
    pub(crate) is_disputed: bool,
    pub(crate) primaries: Vec<Primary>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Primary {
    pub(crate) name: NodeName,
    /// The slots that it has: `0..=16383` when the server is no cluster, empty when it is about to
    /// get its first slots.
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

/// Knows the nodes of one arbiter: asks them which of them has which slots, and makes a connector
/// for each.
pub(crate) trait Directory: Send + Sync {
    /// Asks the nodes which of them has which slots now. `known` are the nodes of the last map,
    /// which are asked in addition to the seeds. It is polled on the engine's runtime and limits
    /// its own time.
    fn look(&self, known: Vec<NodeName>) -> BoxFuture<'_, Result<Map, Fault>>;

    /// Completes when a message says that the map may have changed, so that it is read before the
    /// interval is over.
    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// How often the map is read when nothing says that it has changed.
    fn look_interval(&self) -> Duration;

    /// The connector of a node.
    fn connector(&self, node: &NodeName) -> Arc<dyn Connector>;
}
