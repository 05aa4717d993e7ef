//! The interface between the engine and the arbiter: commands, answers and connections.

pub(crate) mod groups;
pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;
pub(crate) mod server_view;
mod task_waker;
#[cfg(feature = "rustls")]
pub(crate) mod tls;
pub(crate) mod wire;

pub(crate) use server_view::ServerView;
pub(crate) use task_waker::TaskWaker;
pub(crate) use wire::{BoxFuture, Connected, Connector, Filled, Hints, Inbox, Pulled, Wire};

use std::sync::Arc;
use std::time::Duration;

use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::status::ServerInfo;
use crate::domain::value::StoredValue;
use crate::{Holder, Token};

/// How TLS is spoken on connections of our own.
#[cfg(feature = "rustls")]
pub(crate) type TlsSettings = Arc<rustls::ClientConfig>;

/// Without the feature there are none.
#[cfg(not(feature = "rustls"))]
#[derive(Clone, Debug)]
pub(crate) enum TlsSettings {}

/// How long a connection may take to be made, and be silent, even if `command_timeout` is shorter.
pub(crate) const LEAST_SILENCE: Duration = Duration::from_millis(500);

/// How long a place in the server's queue lasts unless its waiter asks again.
pub(crate) const PLACE: Duration = Duration::from_secs(5);

/// How long a caller that does not wait stays in the queue after an idle holder was asked. Places that end this
/// soon are not counted.
pub(crate) const ASK: Duration = Duration::from_millis(200);

/// How long a granted lock is reserved for the waiter that it was granted to.
pub(crate) const CLAIM: Duration = Duration::from_secs(1);

/// The most holders, and the most waiters, that a status shows.
pub(crate) const MOST_SHOWN: usize = 200;

/// The most holds that a forced release ends in one command.
pub(crate) const MOST_FORCED: usize = 32;

/// One command for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) names: Names,
    pub(crate) kind: Kind,
    pub(crate) verb: Verb,
    /// How long the answer may take before its outcome counts as unknown.
    pub(crate) timeout: Duration,
}

/// What a command does. Times are whole milliseconds.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    /// Takes a mutex when its key is free, and does not look at the queue. It is not idempotent:
    /// after an unknown outcome, `Acquire` with the same token finds out who has the lock.
    Take { token: Arc<str>, ttl: Option<Duration> },
    /// Takes the lock, recognises a token that holds it already, or puts the token into the queue.
    Acquire(Acquire),
    /// Lets the lease run for `ttl` from now, unless it runs longer.
    Renew { token: Arc<str>, ttl: Option<Duration> },
    /// Sets the end of the token's lease to `time` from now, even when that is earlier than before.
    /// Only for a token that no guard relies on.
    Keep { token: Arc<str>, time: Duration },
    /// Asks whether the token still has the lock.
    Check { token: Arc<str> },
    /// Asks whether a newer call has come than that of the token, which has the lock.
    Newer { token: Arc<str> },
    /// Asks why the token no longer has the lock. Only a store sends this, after an answer that did
    /// not say why.
    Why { token: Arc<str> },
    /// Turns a writer's hold into a reader's.
    Downgrade { token: Arc<str> },
    /// Raises the fencing counters of the keys to a number that other keys of the same lock have
    /// reached. Only a store sends this, when the keys of a lock have several slots.
    Raise { token: Arc<str>, fence: u64 },
    /// Releases the lock that a token has, or removes the token from the queue.
    Release {
        token: Arc<str>,
        /// Whether a waiter is likely to be in the queue.
        waited_for: bool,
        /// Keep the lock instead of freeing it.
        keep: Option<Keep>,
        /// Give this value to those who wait and share, for at most this long.
        share: Option<(StoredValue, Duration)>,
        /// Leave a tombstone for this long, which refuses an acquisition of the token that arrives
        /// later.
        tombstone: Option<Duration>,
    },
    /// Reads the value beside the lock.
    Fetch,
    /// Reads who has the lock and who waits for it. Changes nothing.
    Look,
    /// Ends the holds of these tokens, at most [`MOST_FORCED`] of them, and leaves the reason for
    /// their holders.
    Force {
        /// The tokens and the managers that made them.
        tokens: Vec<Token>,
        /// Identifies a value that another program wrote, as [`ServerView::foreign`] did.
        foreign: Option<Arc<str>>,
        because: Arc<str>,
    },
    /// Lists some of the keys that match a pattern. The pattern is the main key of the command.
    Scan { cursor: u64 },
    /// Tells the process that asked for an idle lease, with this token, that the lock is in use.
    InUse { asker: Arc<str> },
    /// Asks the server for a sign of life.
    Ping,
    /// Writes nothing, and is refused where a write would be.
    Probe,
}

/// How a lock is kept after its release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Keep {
    pub(crate) time: Duration,
    /// What takes the place of the token. A lock that several can hold keeps the token.
    pub(crate) mark: Arc<str>,
    /// What is stored beside the lock in the same step, for as long.
    pub(crate) value: Option<StoredValue>,
}

/// What an acquisition asks for.
#[expect(clippy::struct_excessive_bools, reason = "a list of options")]
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) token: Arc<str>,
    pub(crate) ttl: Option<Duration>,
    /// When the lock is busy, queue for this long.
    pub(crate) queue: Option<Duration>,
    pub(crate) fair: bool,
    /// How many fencing numbers to reserve.
    pub(crate) fences: u32,
    /// Whether to give it a slot. Only for permits.
    pub(crate) slotted: bool,
    /// Whether the value of a body that shares it is wanted. Only for a mutex.
    pub(crate) share: bool,
    pub(crate) repair_orphan: Option<Duration>,
    /// Only queue when fewer than this many wait already.
    pub(crate) most_waiting: Option<usize>,
    /// Ends older calls that do so as well, or is ended by newer ones. Only for a mutex.
    pub(crate) newest: Option<Newest>,
    /// When the holder may be idle, ask it to hand over, and queue for this long. Only for a mutex,
    /// and only when `queue` is `None`.
    pub(crate) ask: Option<Duration>,
}

/// Which question of a call that ends older ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Newest {
    /// The server has not answered any, so this may be the first that it executes.
    First,
    Later,
}

impl Acquire {
    /// An acquisition with no other options.
    pub(crate) fn of(token: Arc<str>, ttl: Option<Duration>) -> Self {
        Self {
            token,
            ttl,
            queue: None,
            fair: true,
            fences: 0,
            slotted: false,
            share: false,
            repair_orphan: None,
            most_waiting: None,
            newest: None,
            ask: None,
        }
    }
}

impl Verb {
    #[cfg(test)]
    pub(crate) fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. })
    }

    /// Whether it asks for a lock.
    pub(crate) fn acquires(&self) -> bool {
        matches!(self, Self::Take { .. } | Self::Acquire(_))
    }

    /// The lease that it asks for.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Take { ttl, .. }
            | Self::Acquire(Acquire { ttl, .. })
            | Self::Renew { ttl, .. } => *ttl,
            _ => None,
        }
    }

    /// The token that the command is about.
    pub(crate) fn token(&self) -> Option<&Arc<str>> {
        match self {
            Self::Take { token, .. }
            | Self::Acquire(Acquire { token, .. })
            | Self::Renew { token, .. }
            | Self::Keep { token, .. }
            | Self::Check { token }
            | Self::Newer { token }
            | Self::Why { token }
            | Self::Downgrade { token }
            | Self::Raise { token, .. }
            | Self::Release { token, .. } => Some(token),
            Self::Fetch
            | Self::Look
            | Self::Force { .. }
            | Self::Scan { .. }
            | Self::InUse { .. }
            | Self::Ping
            | Self::Probe => None,
        }
    }
}

/// What the arbiter answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The token has the lock. `fence` is the last of the reserved fencing numbers, if any were
    /// asked for.
    Held { fence: Option<u64>, slot: Option<u32> },
    /// Another token holds it.
    Busy(Blocker),
    /// The number of waiters has reached this token's limit. The token was taken out of the
    /// queue.
    Crowded {
        waiting: usize,
        /// The holder's value, where one holder can be named.
        holder: Option<String>,
        /// How long its lease, or the mark that stands there, lasts, if it ends.
        left: Option<Duration>,
    },
    /// A newer call has come. The token was taken out of the queue, and may have the lock.
    Superseded { held: bool },
    /// The token is to have this value of another hold, and nothing else of the token is left.
    Shared(StoredValue),
    /// This token can't be used again: a tombstone refuses it, or a later question of a call with `newest` is not
    /// known.
    Tombstone,
    /// The lease runs at least as long as was asked for.
    Renewed {
        /// The rest of the lease, when it is more than a second longer than was asked for.
        longer: Option<Duration>,
        /// Whether a client waits for the lock.
        waited_for: bool,
        slot: Option<u32>,
    },
    /// The command was executed: the token has the lock, keeps it, or has released it.
    Done,
    /// The token has lost the lock. Other keys of the token could not be removed yet.
    Freed,
    /// The token does not have the lock: the key is gone, or has another value.
    Gone { by: Option<String>, because: Option<String> },
    /// The value at the key of the value, which may be empty; `None` if it is not text.
    Value(Option<StoredValue>),
    /// The holders and the waiters.
    Seen(Box<ServerView>),
    /// Keys, and the cursor of the next page; `None` after the last one.
    Keys { keys: Vec<String>, next: Option<u64> },
}

impl Answer {
    /// What two of those who were asked the same, and have done it, say together.
    pub(crate) fn and(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Held { fence: one, slot }, Self::Held { fence: other, .. }) => {
                Self::Held { fence: one.max(*other), slot }
            }
            (
                Self::Renewed { longer: one, waited_for: first, slot },
                Self::Renewed { longer: other, waited_for: second, slot: its },
            ) => {
                let (longer, waited_for) = (one.max(*other), first || *second);
                Self::Renewed { longer, waited_for, slot: slot.or(*its) }
            }
            (Self::Gone { .. }, Self::Done) => Self::Done,
            (one, _) => one,
        }
    }

    /// Adds the description of the server to the answer of a look.
    pub(crate) fn with_server(mut self, server: impl FnOnce() -> ServerInfo) -> Self {
        if let Self::Seen(view) = &mut self {
            view.server = Some(server());
        }
        self
    }
}

/// The holder that keeps an acquisition from getting the lock.
#[expect(clippy::struct_excessive_bools, reason = "what a reply says")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Blocker {
    /// The holder's value, where one holder can be named.
    pub(crate) value: Option<String>,
    /// The rest of its lease; `None` when the lease never ends.
    pub(crate) ttl: Option<Duration>,
    /// Whether our token is in the queue now, so that a message will follow.
    pub(crate) queued: bool,
    /// Whether this acquisition gave a ttl to a value that had none.
    pub(crate) repaired: bool,
    /// Whether the holder, which may be idle, was asked to hand over.
    pub(crate) asked: bool,
}

impl Blocker {
    /// A holder of whom nothing is known.
    pub(crate) const fn unknown() -> Self {
        Self { value: None, ttl: None, queued: false, repaired: false, asked: false }
    }

    /// The holder as it is shown to users.
    pub(crate) fn holder(&self) -> Option<Holder> {
        self.value.as_deref().map(|value| Holder::of_value(value, self.ttl))
    }

    /// Whether a token of this manager makes the lock busy.
    pub(crate) fn is_of(&self, manager: &Arc<str>) -> bool {
        let holder = self.value.as_deref().map(Token::from_wire);
        holder.is_some_and(|holder| holder.manager() == Some(manager))
    }
}

/// Something that the server reports without having been asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A token was granted the lock that it waits for. This is a hint: only the answer to the next
    /// `Acquire` proves it.
    Granted {
        token: String,
        /// Whether more waiters are in the queue.
        waited_for: bool,
    },
    /// Another process waits for the lock at this key. This is a hint as well.
    WaitedFor { key: String },
    /// A caller that does not wait asks for the lock at this key, in case its lease is idle. This
    /// is a hint as well.
    Asked { key: String, token: String },
    /// A token's hold was ended by force. This is a hint as well.
    Forced { token: String },
    /// A node of several that have to agree is back: holders must renew, so that it has their locks again.
    Returned,
    /// From now on grants are announced by messages, or no longer are: every waiter must look
    /// again.
    Listening { hints_enabled: bool },
}
