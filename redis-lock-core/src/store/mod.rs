//! The seam between the engine and whoever arbitrates.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::demand::Kind;
use crate::error::Fault;
use crate::names::Names;
use crate::{Holder, Token};

mod limits;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod sight;

pub(crate) use sight::Sight;

/// How long a granted lock waits for its new owner to take it.
pub(crate) const CLAIM: Duration = Duration::from_secs(1);

/// So many holders and waiters of one lock are shown at once.
pub(crate) const MOST_SHOWN: usize = 200;

/// So many holds are ended at once.
pub(crate) const MOST_FORCED: usize = 32;

/// An arbiter: a server, several of them, or this process's memory.
///
/// The engine drives it from one thread. Commands of one batch are executed in their order, and a
/// batch after the ones before it for as long as one connection lasts; a new connection is told by
/// [`Event::Connected`]. Every command is idempotent by its token, so that it may be sent again
/// whenever its outcome is unknown.
pub(crate) trait Store: Send {
    /// Sends a batch; the future brings the answers in the same order. It must be polled at once
    /// and to its end: the engine bounds the time, and wants answers that come too late as well.
    fn execute(&mut self, batch: Arc<[Command]>) -> Answers;

    /// Connects now, where it has not; fails when that can't be done now.
    fn ready(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

    /// The next thing that happened without having been asked for.
    fn event(&mut self) -> Pin<Box<dyn Future<Output = Event> + Send + '_>>;

    /// Answers have stopped coming: the path is dead or the server is stuck. The store decides
    /// whether to replace its connection.
    fn unresponsive(&mut self);

    /// Makes a way of its own to the same arbiter; none where that would not be shorter.
    fn wire(&self) -> Option<WireMaker> {
        None
    }

    /// What was found out about the server, for people.
    fn describe(&self) -> String;
}

/// A way to the arbiter beside the store's own, for first attempts and plain releases. Nothing that
/// it does blocks, and any thread may use it. Its first failure is its last.
pub(crate) trait Wire: Send {
    /// Adds a command to what is to be sent; `false` when it can't be said this way.
    fn push(&mut self, command: &Command) -> bool;

    /// Sends what can be sent now.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether all has been sent.
    fn is_flushed(&self) -> bool;

    /// Takes in what has arrived; `true` when there may be more.
    fn fill(&mut self) -> io::Result<bool>;

    /// Whether nothing more should be sent: this is not the arbiter any longer.
    fn is_spent(&self) -> bool;

    /// What was said to the oldest command that has had no reply, if it is there.
    fn pull(&mut self, verb: &Verb) -> Option<Result<Reply, Fault>>;
}

/// What is said to a command on a wire.
#[derive(Debug)]
pub(crate) enum Reply {
    Answer(Answer),
    /// Only the store's own way can tell. `waited_for`: because somebody may be waiting.
    Unclear {
        waited_for: bool,
    },
}

/// Tells when a wire has something to do.
pub(crate) trait Readiness: Send + Sync {
    /// Ends when something may have arrived; where `sending`, also when more can be sent.
    fn ready(&self, sending: bool) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;
}

/// Makes a wire on the runtime that it is polled on; nothing when that fails.
pub(crate) type WireMaker =
    Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Option<NewWire>> + Send>> + Send>;

/// A wire, and what tells when to use it.
pub(crate) type NewWire = (Box<dyn Wire>, Arc<dyn Readiness>);

/// The answers to a batch, in its order.
pub(crate) type Answers = Pin<Box<dyn Future<Output = Vec<Result<Answer, Fault>>> + Send>>;

/// One command for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) names: Arc<Names>,
    pub(crate) kind: Kind,
    pub(crate) verb: Verb,
    /// How long the answer may take before its outcome counts as unknown.
    pub(crate) timeout: Duration,
}

/// What a command does. Times are whole milliseconds.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    /// Takes a mutex that is free, without looking at anything else. Not idempotent: an unknown
    /// outcome is resolved by `Acquire` with the same token.
    Take { token: Arc<str>, ttl: Option<Duration> },
    /// Takes the lock, recognises it as taken, or queues for it.
    Acquire {
        token: Arc<str>,
        ttl: Option<Duration>,
        /// Queue when it is busy, and stay there for this long without asking again.
        queue: Option<Duration>,
        fair: bool,
        /// How many fencing numbers to reserve.
        fences: u32,
        repair_orphan: Option<Duration>,
    },
    /// Lets the lease run for `ttl` from now, unless it runs longer.
    Renew { token: Arc<str>, ttl: Option<Duration> },
    /// Lets what the token has end in `time` from now, be that later or earlier. Only for a token
    /// that nobody believes to have the lock.
    Keep { token: Arc<str>, time: Duration },
    /// Asks whether the lock is still ours.
    Check { token: Arc<str> },
    /// Asks why the token does not have the lock any more. Only a store sends it, after an answer
    /// that says no more than that.
    Why { token: Arc<str> },
    /// Gives a mutex to the first waiter of another process and queues for it again as `next`;
    /// keeps it with a fresh lease where nobody waits.
    Yield { token: Arc<str>, next: Arc<str>, ttl: Option<Duration>, fences: u32, queue: Duration },
    /// Lets a writer go on as a reader.
    Downgrade { token: Arc<str> },
    /// Raises the fencing counters of the keys to a number that others of the same lock have
    /// reached. Only a store sends it, where the keys of a lock are in several places.
    Raise { token: Arc<str>, fence: u64 },
    /// Ends the hold or the wait of a token.
    Release {
        token: Arc<str>,
        /// Whether somebody is likely to wait for it.
        waited_for: bool,
        /// Keep the lock for this long instead of freeing it.
        keep: Option<Duration>,
        /// Refuse an acquisition of this token that arrives later, for this long.
        bury: Option<Duration>,
    },
    /// Shows who has the lock and who waits for it; changes nothing.
    Look,
    /// Ends the hold of whoever has one of these tokens, [`MOST_FORCED`] at once at most, and leaves
    /// word of the reason.
    Force {
        /// The tokens and the managers that made them.
        tokens: Vec<Token>,
        /// The value that no client of ours wrote, by the name that a look gave it.
        foreign: Option<Arc<str>>,
        because: Arc<str>,
    },
    /// Names some of the keys that match; the name of the command is the pattern.
    Scan { cursor: u64 },
}

impl Verb {
    /// The token it is about.
    pub(crate) fn token(&self) -> Option<&Arc<str>> {
        match self {
            Self::Take { token, .. }
            | Self::Acquire { token, .. }
            | Self::Renew { token, .. }
            | Self::Keep { token, .. }
            | Self::Check { token }
            | Self::Why { token }
            | Self::Yield { token, .. }
            | Self::Downgrade { token }
            | Self::Raise { token, .. }
            | Self::Release { token, .. } => Some(token),
            Self::Look | Self::Force { .. } | Self::Scan { .. } => None,
        }
    }

    /// The token that the server may queue for it.
    pub(crate) fn queues(&self) -> Option<&Arc<str>> {
        match self {
            Self::Acquire { token, queue: Some(_), .. } => Some(token),
            Self::Yield { next, .. } => Some(next),
            _ => None,
        }
    }

    /// Whether an unknown outcome of it may leave something on the server that nobody knows of.
    pub(crate) fn asks_for(&self) -> Option<&Arc<str>> {
        match self {
            Self::Take { token, .. } | Self::Acquire { token, .. } => Some(token),
            Self::Yield { next, .. } => Some(next),
            _ => None,
        }
    }
}

/// What the arbiter said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The lock is ours; the last of the reserved fencing numbers, where some were asked for.
    Held { fence: Option<u64> },
    /// Somebody else has it.
    Busy(Rival),
    /// This token was buried; it can't be used any more.
    Buried,
    /// It was given away, and `next` is queued.
    HandedOver,
    /// The lease runs at least as long as was asked for.
    Renewed {
        /// What is left of it, when that is more than a second longer than was asked for.
        longer: Option<Duration>,
        /// Whether somebody waits for the lock.
        waited_for: bool,
    },
    /// Still ours, kept, or released.
    Done,
    /// It is not ours: another value stands there, or none.
    Gone { by: Option<String>, because: Option<String> },
    /// Who has it and who waits.
    Seen(Box<Sight>),
    /// Keys, and where to go on; nowhere when that was the end.
    Keys { keys: Vec<String>, next: Option<u64> },
}

/// Who has a lock that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rival {
    /// The holder's value, where one holder can be named.
    pub(crate) value: Option<String>,
    /// What is left of its lease; `None` when it has no end.
    pub(crate) ttl: Option<Duration>,
    /// Whether we are in the queue now and will be told.
    pub(crate) queued: bool,
    /// Whether a value without ttl was given one just now.
    pub(crate) repaired: bool,
}

impl Rival {
    /// Somebody of whom nothing is known.
    pub(crate) const fn unknown() -> Self {
        Self { value: None, ttl: None, queued: false, repaired: false }
    }

    /// The holder as people want to see it.
    pub(crate) fn holder(&self) -> Option<Holder> {
        self.value.as_deref().map(|value| Holder::of(Token::from_wire(value), self.ttl))
    }
}

/// Something that happened without having been asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A token was granted what it waits for. A hint: the next `Acquire` tells the truth.
    Granted {
        token: String,
        /// Whether others wait behind it.
        waited_for: bool,
    },
    /// Somebody waits for the lock at this key. A hint as well.
    WaitedFor { key: String },
    /// A token's hold was ended by force. A hint as well.
    Forced { token: String },
    /// A (new) connection stands: whoever waits must look again.
    Connected,
    /// Grants are told from now on, or are not: whoever waits must look again.
    Listening { told: bool },
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
