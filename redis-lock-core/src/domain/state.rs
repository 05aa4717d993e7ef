//! The state of a hold, as its guard knows it.

use crate::Token;

/// What a guard knows of its hold, without asking the server. Made by [`Guard::state`](crate::Guard::state).
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
    /// The lease ended, or the server said that the lock is not ours. It never comes back.
    Lost,
    /// The guard gave the lock back.
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
    #[error("its lease ended before a renewal was confirmed")]
    Expired,
    /// Another value stands at the key.
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
    /// Its `Locks` were shut down, or drained for as long as they were given.
    #[error("its `Locks` were shut down")]
    Shutdown,
    /// It was held as long as `max_hold` allows.
    #[error("it was held for as long as max_hold allows")]
    HoldLimit,
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
