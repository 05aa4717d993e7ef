//! What the layers tell an operator, because a client must not learn it.

use redis_locks::LockError;

/// An answer that only the operator can explain.
pub(crate) fn answered(error: &LockError, status: u16) {
    #[cfg(feature = "tracing")]
    if status >= 500 {
        tracing::warn!(%error, status, "the lock of a request failed");
    } else {
        tracing::debug!(%error, status, "the lock of a request is not free");
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (error, status);
}
