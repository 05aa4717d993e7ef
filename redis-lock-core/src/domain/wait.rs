//! How long an acquisition may wait.

use std::time::Duration;

/// How long an acquisition waits for a lock that is busy.
///
/// ```
/// use std::time::Duration;
/// use redis_locks::Wait;
/// assert_eq!(Wait::from(Duration::from_secs(5)), Wait::For(Duration::from_secs(5)));
/// assert_eq!(Wait::from(Duration::ZERO), Wait::None);
/// assert_eq!(Wait::default(), Wait::Forever);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::exhaustive_enums, reason = "there is no fourth way to wait")]
pub enum Wait {
    /// Until the lock is acquired. The default.
    #[default]
    Forever,
    /// Not at all: one attempt.
    None,
    /// At most this long; [`LockError::Busy`](crate::LockError::Busy) after that.
    For(Duration),
}

impl From<Duration> for Wait {
    fn from(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::For(limit) }
    }
}
