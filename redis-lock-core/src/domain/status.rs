//! What is known of a lock, and of a hold by its guard.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::domain::env;
use crate::domain::label::SecondCall;
use crate::domain::mark::{Mark, MarkKind};
use crate::{StoredValue, Token};

/// A snapshot of a lock: its holders and its waiters. Made by
/// [`Locks::status`](crate::Locks::status) and [`Locks::list`](crate::Locks::list).
///
/// It is for people and dashboards, and out of date when it arrives. So don't base decisions about the protected
/// resource on it: acquire the lock, or call [`Guard::verify`](crate::Guard::verify).
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// use redis_locks::{LockKind, Locks};
/// let locks = Locks::in_memory();
/// let guard = locks.mutex("order:42").blocking_acquire()?;
/// let status = locks.blocking_status("order:42")?;
/// assert_eq!(status.kind, LockKind::Mutex);
/// assert_eq!(status.holders[0].token, *guard.token());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LockStatus {
    /// The key, without the namespace.
    pub key: String,
    /// How it is held.
    pub kind: LockKind,
    /// Its holders: none when it is free, one for a mutex or a writer, several for readers and permits.
    pub holders: Vec<Holder>,
    /// The recorded success of [`once`](crate::LockRequest::once), until its period ends. The lock has no holder then.
    pub done: Option<Done>,
    /// Until when [`min_hold`](crate::LockRequest::min_hold) keeps the lock, which its holder has released.
    pub kept_until: Option<SystemTime>,
    /// Its waiters, first come first. Each task of this process is one entry. All tasks of another process that wait
    /// for the same mutex share one entry, because they share a place in the queue. Clients of other libraries, and
    /// waiters that did not queue, are not listed.
    pub waiters: Vec<Waiter>,
    /// The server that was asked.
    pub server: ServerInfo,
}

impl LockStatus {
    /// Whether a client holds it, of this library or of another.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// A recorded success of a call with [`once`](crate::LockRequest::once).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Done {
    /// Who did it, as in [`Holder::label`].
    pub by: Option<String>,
    /// When it was done, by the clock of the machine that did it.
    pub at: SystemTime,
    /// When the period ends.
    pub until: SystemTime,
    /// The hold under which it was done.
    pub token: Token,
    /// The value that later calls get by `replay`. A list of locks leaves it out.
    pub value: Option<StoredValue>,
}

impl Done {
    /// What a mark at the key of a mutex tells, for which this much time is left.
    pub(crate) fn read(value: &str, left: Option<Duration>) -> Option<Self> {
        let mark = Mark::read_done(value)?;
        let until = left.and_then(|left| env::wall().checked_add(left)).unwrap_or(mark.at);
        Some(Self { by: mark.token.label(), at: mark.at, until, token: mark.token, value: None })
    }
}

/// How a lock is held.
///
/// ```
/// # use redis_locks::{LockKind, Locks};
/// assert_eq!(Locks::in_memory().blocking_status("a").unwrap().kind, LockKind::Free);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LockKind {
    /// It has no holder.
    Free,
    /// One holder, as a mutex.
    Mutex,
    /// Readers.
    Read,
    /// A writer.
    Write,
    /// Holders of permits, at most `limit`.
    #[non_exhaustive]
    Permit {
        /// How many can hold it at once.
        limit: u32,
    },
    /// The key has a value that this library did not write. The lock of another client is listed as
    /// the holder. Data of another program has no holder.
    Foreign,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Mutex => f.write_str("mutex"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Permit { limit } => write!(f, "permit of {limit}"),
            Self::Foreign => f.write_str("foreign"),
        }
    }
}

/// One holder of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The token of the acquisition; for a foreign client, the value that it wrote.
    pub token: Token,
    /// Who it is: by default host and process, and the function for annotated ones.
    pub label: Option<String>,
    /// When it acquired the lock, by the clock of its machine.
    pub since: Option<SystemTime>,
    /// What is left of its lease by the server's clock; `None` when it never expires.
    pub ttl: Option<Duration>,
    /// Its fencing number, if it asked for one. For a hold in another process, the number with which the hold began:
    /// hand-overs inside that process raise it without telling the server.
    pub fence: Option<u64>,
    /// The number of its permit, if it asked for one by [`slotted`](crate::LockRequest::slotted).
    pub slot: Option<u32>,
    /// Until when [`min_hold`](crate::LockRequest::min_hold) or [`once`](crate::LockRequest::once) keeps the lock, if
    /// it was released already.
    pub kept_until: Option<SystemTime>,
    /// Whether `once` keeps it.
    pub(crate) is_done: bool,
    /// Whether no body runs, and the lease only [lingers](crate::LockRequest::linger).
    pub idle: Idle,
    /// Which option it has for a second call. A holder with [`Newest`](SecondCall::Newest) is asked to leave when
    /// another one waits.
    pub second_call: SecondCall,
}

/// Whether a holder's lease only lingers, so that another process gets it on request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Idle {
    /// A body runs, or a guard is held.
    No,
    /// No body has run since then, by the clock of this machine.
    Since(SystemTime),
    /// The holder lets leases linger, and only its process knows whether a body runs.
    Maybe,
}

impl Holder {
    pub(crate) fn of(token: Token, ttl: Option<Duration>) -> Self {
        let (label, since) = (token.label(), token.since());
        let idle = if token.may_be_idle() { Idle::Maybe } else { Idle::No };
        let (second_call, fence, slot) = (token.second_call(), None, None);
        let (kept_until, is_done) = (None, false);
        Self { token, label, since, ttl, fence, slot, kept_until, is_done, idle, second_call }
    }

    /// The holder that a value at the key of a mutex names: a token, or the mark of one.
    pub(crate) fn of_value(value: &str, ttl: Option<Duration>) -> Self {
        let Some(mark) = Mark::read(value) else { return Self::of(Token::from_wire(value), ttl) };
        let kept_until = ttl.and_then(|left| env::wall().checked_add(left));
        Self { kept_until, is_done: mark.kind == MarkKind::Done, ..Self::of(mark.token, ttl) }
    }
}

/// A waiter for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// Who it is, as in [`Holder::label`].
    pub label: Option<String>,
    /// Since when it has been waiting, by the clock of its machine.
    pub since: Option<SystemTime>,
    /// Which option it has for a second call.
    pub second_call: SecondCall,
}

/// Whether scripts are used on the server.
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// use redis_locks::{Locks, Scripting};
/// let locks = Locks::builder().url("redis://localhost").scripting(Scripting::Never).open()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Scripting {
    /// If the server allows them. Otherwise transactions, and mutexes only.
    #[default]
    Auto,
    /// Never: transactions under `WATCH`, and mutexes only. For servers without scripting, or whose operators don't
    /// want it.
    Never,
}

/// The server that answered, and the servers related to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Name and version, such as `Valkey 9.0.1`, if the server reports them.
    pub version: String,
    /// How a lock without waiters is released there.
    pub release: ReleaseBy,
    /// Whether scripts are used there. Without them only mutexes work, by transactions.
    pub scripts: bool,
    /// How many servers there are, and how they are related.
    pub topology: Topology,
    /// The epoch of the cluster or of the sentinels' configuration, which rises with each change;
    /// `None` for one server.
    pub epoch: Option<u64>,
    /// The known nodes; empty for one server.
    pub nodes: Vec<NodeInfo>,
    /// What an operator should know about the server of this lock: how it may lose locks, and what is set up badly.
    /// Found when connecting to it.
    pub warnings: Vec<String>,
}

impl ServerInfo {
    /// One server, or one of which no others are known.
    pub(crate) fn alone(version: String, release: ReleaseBy) -> Self {
        let topology =
            if release == ReleaseBy::Memory { Topology::Memory } else { Topology::Single };
        let (nodes, warnings) = (Vec::new(), Vec::new());
        Self { version, release, scripts: true, topology, epoch: None, nodes, warnings }
    }
}

/// How many servers there are, and how they are related.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Topology {
    /// None: memory of this process.
    Memory,
    /// One.
    Single,
    /// One primary at a time, which sentinels replace when it fails.
    Sentinel,
    /// Several, each with a part of the keys.
    Cluster,
    /// Several independent servers, of which a majority must agree.
    Quorum,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
        })
    }
}

/// One node of several.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The address that it announces.
    pub address: String,
    /// What it does.
    pub role: NodeRole,
    /// Name and version, once it was connected to.
    pub version: Option<String>,
    /// Why it can't be used, if the last attempt to connect failed; only its locks wait. For a node of a quorum also
    /// why it does not vote.
    pub trouble: Option<String>,
    /// Whether it votes, if it is a node of a quorum; of all others this is `true`.
    pub votes: bool,
}

/// What a node does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NodeRole {
    /// It has keys, and accepts writes.
    Primary,
    /// It has a copy of a primary's keys.
    Replica,
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
        })
    }
}

/// Describes a server of which nothing is known.
pub(crate) fn unknown_server() -> ServerInfo {
    ServerInfo::alone("unknown version".into(), ReleaseBy::Script)
}

/// The ways to release a lock, from the cheapest to the one that works on every server.
/// Connecting finds out which one to use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ReleaseBy {
    /// Without a server: memory of this process.
    Memory,
    /// The server's own compare-and-delete: `DELIFEQ` (Valkey 9), `DELEX` (Redis 8.4).
    CompareAndDelete,
    /// A script.
    Script,
    /// A transaction under `WATCH`, where scripts are denied or not wanted.
    Transaction,
}

impl fmt::Display for ReleaseBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::CompareAndDelete => "compare-and-delete",
            Self::Script => "script",
            Self::Transaction => "transaction",
        })
    }
}

/// The state of a guard's hold, without asking the server. Made by [`Guard::state`](crate::Guard::state).
///
/// ```
/// # fn main() -> Result<(), redis_locks::LockError> {
/// use redis_locks::{LockState, Locks};
/// let guard = Locks::in_memory().mutex("a").blocking_acquire()?;
/// assert_eq!(guard.state(), LockState::Held);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "callers decide by it; a fifth state would be a new contract"
)]
pub enum LockState {
    /// The lease runs and was confirmed on time.
    Held,
    /// A renewal was missed; the lease still runs. Start nothing new that needs the lock.
    Uncertain,
    /// The lease ended, or the server said that the lock is not ours. This is final.
    Lost,
    /// The guard released the lock.
    Released,
}

/// How a drain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Drained {
    /// How many locks were still held when the time was up. Their guards have lost them by
    /// [`LossReason::Shutdown`].
    pub cut_off: usize,
}

/// Why a lock was lost.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ended before a renewal was confirmed: the server could not be reached in time, or
    /// renewal was switched off.
    #[error("its lease ended before it was renewed or adopted")]
    Expired,
    /// The key has another value.
    #[error("another holder has it now ({by})")]
    #[non_exhaustive]
    Overwritten {
        /// The value that the key has now.
        by: Token,
    },
    /// The key is gone: deleted, flushed, evicted, or released by force.
    #[error("it was removed from the server{}", by_force(.because.as_deref()))]
    #[non_exhaustive]
    Removed {
        /// The reason that `force_release` was given.
        because: Option<String>,
    },
    /// Its `Locks` was shut down, or the limit of its drain was over.
    #[error("its `Locks` were shut down")]
    Shutdown,
    /// It was held for as long as `max_hold` allows.
    #[error("it reached max_hold")]
    HoldLimit,
}

impl LossReason {
    /// Its name in events and metrics.
    #[cfg_attr(
        not(any(feature = "metrics", feature = "tracing")),
        expect(dead_code, reason = "nothing is reported without the features")
    )]
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Overwritten { .. } => "overwritten",
            Self::Removed { because: Some(_) } => "forced",
            Self::Removed { because: None } => "removed",
            Self::Shutdown => "shutdown",
            Self::HoldLimit => "hold_limit",
        }
    }
}

fn by_force(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}

/// Something that happened to a lease that lingers, or that was asked for because it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleEvent {
    /// The last guard was dropped, and the lease stays.
    Began,
    /// The next call here took it without a command.
    TakenAgain,
    Ended(IdleEnd),
    /// Another process, whose lease may be idle, was asked to hand over.
    Asked(AskOutcome),
}

/// Why a lease no longer lingers, apart from being taken again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleEnd {
    /// Its `linger` time is over.
    Over,
    /// Another process wants the lock.
    Asked,
    /// A caller of this process wants it with other options.
    Terms,
    /// Too many leases linger.
    Limit,
    /// The connection, the subscription or the lease itself was lost.
    Trouble,
    Shutdown,
}

/// The answer of a holder that may be idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskOutcome {
    HandedOver,
    /// The lock is in use.
    InUse,
    /// No answer came in time.
    Silent,
}
