//! What is told of the life of locks.

use crate::LockKey;

/// A hold was ended by force.
pub(crate) fn forced(key: &LockKey, reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "redis_locks", key = key.as_str(), reason, "released by force");
    #[cfg(not(feature = "tracing"))]
    let _ = (key, reason);
}
