//! What can go wrong, told apart by what the caller does about it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Holder, LossReason};

/// Why a lock was not acquired, or not kept.
///
/// ```
/// use redis_lock_core::{LockError, Locks};
/// # fn main() -> Result<(), LockError> {
/// let locks = Locks::in_memory();
/// let _held = locks.mutex("report").blocking_acquire()?;
/// let error = locks.mutex("report").no_wait().blocking_acquire().unwrap_err();
/// assert!(error.is_busy());
/// assert_eq!(error.key(), Some("report"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else held the lock for as long as the caller was willing to wait. Try later, or wait longer.
    #[error("lock `{key}` is busy: waited {waited:?}{}; try again later or allow a longer wait", held_by(.holder.as_deref()))]
    Busy {
        /// The key that was asked for.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// Who held it when last seen.
        holder: Option<Box<Holder>>,
    },
    /// The lock was held and is not any more. What the body did after that was not protected.
    #[error("lock `{key}` was lost: {reason}; check what was done under it before doing it again")]
    Lost {
        /// The key that was held.
        key: String,
        /// What ended the hold.
        reason: LossReason,
    },
    /// This task or thread holds the key already; waiting for itself would never end.
    #[error(
        "lock `{key}` is already held by this task; mark the inner use `reentrant` to join the outer hold"
    )]
    Reentrant {
        /// The key that is held.
        key: String,
    },
    /// The server could not be reached, did not answer in time, or refused. Nobody else is known to hold the lock.
    #[error(transparent)]
    Backend {
        /// What happened.
        source: BackendError,
    },
    /// No server was named.
    #[error(
        "no lock server is configured: set REDIS_URL, or build a `Locks` and call `install()` on it at start-up"
    )]
    NotConfigured,
    /// An option, or a combination of options, has no meaning.
    #[error("invalid lock configuration: {reason}")]
    InvalidConfig {
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The key cannot name a lock.
    #[error("invalid lock key {key:?}: {reason}")]
    InvalidKey {
        /// The key as it was given, cut when it is long.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// `shutdown` was called on this `Locks`.
    #[error("these locks are shut down; acquire through a `Locks` that is still in use")]
    Shutdown,
}

impl LockError {
    /// Whether somebody else had the lock.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    /// Whether a lock that was held is not held any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// The key it happened to, where there is one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Busy { key, .. }
            | Self::Lost { key, .. }
            | Self::Reentrant { key }
            | Self::InvalidKey { key, .. } => Some(key),
            Self::Backend { source } => source.key(),
            Self::NotConfigured | Self::InvalidConfig { .. } | Self::Shutdown => None,
        }
    }

    pub(crate) fn config(reason: impl Into<String>) -> Self {
        Self::InvalidConfig { reason: reason.into() }
    }

    pub(crate) fn backend(key: Option<&str>, fault: &Fault) -> Self {
        let source = BackendError { key: key.map(Into::into), fault: fault.clone() };
        match fault.class {
            FaultClass::Misuse => Self::config(source.to_string()),
            _ => Self::Backend { source },
        }
    }
}

fn held_by(holder: Option<&Holder>) -> String {
    match holder {
        Some(holder) => format!(
            ", held by {}",
            holder.label.as_deref().map_or_else(|| holder.token.to_string(), Into::into)
        ),
        None => String::new(),
    }
}

/// A failure of the server or of the way to it.
///
/// Its text says what the driver or the server said, so that has no place in a chain of sources as
/// well; [`get_ref`](Self::get_ref) gives the driver's own error.
#[derive(Clone, Debug)]
pub struct BackendError {
    key: Option<Arc<str>>,
    fault: Fault,
}

impl BackendError {
    /// The lock it happened to, where it happened to one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether trying again can help: `false` for missing rights, wrong passwords and foreign values.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self.fault.class, FaultClass::Permanent | FaultClass::Misuse)
    }

    /// The driver's own error, where there is one.
    #[must_use]
    pub fn get_ref(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.fault.source.as_deref()
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "lock `{key}`: {}", self.fault.what),
            None => f.write_str(&self.fault.what),
        }
    }
}

impl Error for BackendError {}

/// What is known of a command that brought no answer of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultClass {
    /// It was not executed, and may be later.
    Refused,
    /// It was not executed, and will not be before somebody changes something.
    Permanent,
    /// It was not executed, because the caller asks for what can't be.
    Misuse,
    /// It may have been executed: the way to the server broke.
    Unknown,
    /// It may have been executed, or still be: no answer came in time.
    Late,
}

/// A command's failure, as the engine weighs it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) class: FaultClass,
    pub(crate) what: String,
    pub(crate) source: Option<Arc<dyn Error + Send + Sync>>,
}

impl FaultClass {
    /// Whether the command may have been executed, or may be yet.
    pub(crate) fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown | Self::Late)
    }
}

impl Fault {
    /// Connecting failed by a bug, with a message on standard error.
    pub(crate) fn driver_panicked() -> Self {
        let what = "the driver failed while connecting; standard error has its message";
        Self::new(FaultClass::Permanent, what)
    }

    pub(crate) fn new(class: FaultClass, what: impl Into<String>) -> Self {
        Self { class, what: what.into(), source: None }
    }
}
