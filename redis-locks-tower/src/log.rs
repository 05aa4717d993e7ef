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

/// A request that runs without its lock.
pub(crate) fn passed(error: &LockError) {
    #[cfg(feature = "tracing")]
    tracing::warn!(%error, "a request with an idempotency key runs without its lock");
    #[cfg(not(feature = "tracing"))]
    let _ = error;
}

/// An answer that is too large, or came in parts.
pub(crate) fn not_stored(largest: usize) {
    #[cfg(feature = "tracing")]
    tracing::warn!(largest, "an answer can't be stored; a repetition of its request runs again");
    #[cfg(not(feature = "tracing"))]
    let _ = largest;
}
