//! The seam between the engine and whoever arbitrates.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::{Holder, Token};

pub(crate) mod directory;
mod limits;
pub(crate) mod memory;
pub(crate) mod redirect;
pub(crate) mod redis;
pub(crate) mod server_view;
mod task_bell;
#[cfg(feature = "rustls")]
pub(crate) mod tls;
mod wire;

pub(crate) use server_view::ServerView;
pub(crate) use task_bell::TaskBell;
pub(crate) use wire::{
    BoxFuture, Connected, Connector, Filled, Hints, Pulled, Readiness, Watcher, Wire,
};

/// How long a granted lock waits for its new owner to take it.
pub(crate) const CLAIM: Duration = Duration::from_secs(1);

/// So many holders and waiters of one lock are shown at once.
pub(crate) const MOST_SHOWN: usize = 200;

/// So many holds are ended at once.
pub(crate) const MOST_FORCED: usize = 32;

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
    Acquire(Acquire),
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
    /// the reason.
    Force {
        /// The tokens and the managers that made them.
        tokens: Vec<Token>,
        /// The value that no client of ours wrote, by the name that a look gave it.
        foreign: Option<Arc<str>>,
        because: Arc<str>,
    },
    /// Names some of the keys that match; the name of the command is the pattern.
    Scan { cursor: u64 },
    /// Tells whoever asked for an idle lease, by this token, that somebody is inside.
    InUse { asker: Arc<str> },
    /// Asks whether somebody is there.
    Ping,
}

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) token: Arc<str>,
    pub(crate) ttl: Option<Duration>,
    /// Queue when it is busy, and stay there for this long without asking again.
    pub(crate) queue: Option<Duration>,
    pub(crate) fair: bool,
    /// How many fencing numbers to reserve.
    pub(crate) fences: u32,
    pub(crate) repair_orphan: Option<Duration>,
    /// When a holder has it that may be idle: ask that for it, and queue for this long. Only for a
    /// mutex, and where it does not queue anyway.
    pub(crate) ask: Option<Duration>,
    /// It is in the queue, as far as it knows, and nothing says that it can be let in: whoever looks
    /// for many at once may look for it as well.
    pub(crate) stays: bool,
    /// A message has said that it was let in: whoever reads piece by piece looks at that first.
    pub(crate) told: bool,
    /// It was never asked to queue before.
    pub(crate) is_new: bool,
}

impl Acquire {
    /// What is asked for when nothing else is said.
    #[cfg(test)]
    pub(crate) fn of(token: Arc<str>, ttl: Option<Duration>) -> Self {
        Self {
            token,
            ttl,
            queue: None,
            fair: true,
            fences: 0,
            repair_orphan: None,
            ask: None,
            stays: false,
            told: false,
            is_new: false,
        }
    }
}

impl Verb {
    /// The token it is about.
    pub(crate) fn token(&self) -> Option<&Arc<str>> {
        match self {
            Self::Take { token, .. }
            | Self::Acquire(Acquire { token, .. })
            | Self::Renew { token, .. }
            | Self::Keep { token, .. }
            | Self::Check { token }
            | Self::Why { token }
            | Self::Downgrade { token }
            | Self::Raise { token, .. }
            | Self::Release { token, .. } => Some(token),
            Self::Look
            | Self::Force { .. }
            | Self::Scan { .. }
            | Self::InUse { .. }
            | Self::Ping => None,
        }
    }
}

/// What the arbiter said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The lock is ours; the last of the reserved fencing numbers, where some were asked for.
    Held { fence: Option<u64> },
    /// Somebody else has it.
    Busy(Blocker),
    /// This token was buried; it can't be used any more.
    Buried,
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
    Seen(Box<ServerView>),
    /// Keys, and where to go on; nowhere when that was the end.
    Keys { keys: Vec<String>, next: Option<u64> },
}

/// Who has a lock that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Blocker {
    /// The holder's value, where one holder can be named.
    pub(crate) value: Option<String>,
    /// What is left of its lease; `None` when it has no end.
    pub(crate) ttl: Option<Duration>,
    /// Whether we are in the queue now and will be notified.
    pub(crate) queued: bool,
    /// Whether a value without ttl was given one just now.
    pub(crate) repaired: bool,
    /// Whether the holder, which may be idle, was asked for it.
    pub(crate) asked: bool,
    /// Whether many are before us in the queue, so that to look again has time.
    pub(crate) is_far: bool,
}

impl Blocker {
    /// Somebody of whom nothing is known.
    pub(crate) const fn unknown() -> Self {
        Self { value: None, ttl: None, queued: false, repaired: false, asked: false, is_far: false }
    }

    /// The holder as people want to see it.
    pub(crate) fn holder(&self) -> Option<Holder> {
        self.value.as_deref().map(|value| Holder::of(Token::from_wire(value), self.ttl))
    }
}

/// Something that happened without having been asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A token was granted what it waits for. A hint: only the next `Acquire` is proof.
    Granted {
        token: String,
        /// Whether others wait behind it.
        waited_for: bool,
    },
    /// Somebody waits for the lock at this key. A hint as well.
    WaitedFor { key: String },
    /// A token that does not wait asks for the lock at this key, if nobody is inside. A hint as well.
    Asked { key: String, token: String },
    /// A token's hold was ended by force. A hint as well.
    Forced { token: String },
    /// Grants are announced from now on, or are not: whoever waits must look again.
    Listening { hints_enabled: bool },
}
