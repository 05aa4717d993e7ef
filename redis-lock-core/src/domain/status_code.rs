//! What an error is called in protocols that answer with a number.

use crate::LockError;

impl LockError {
    /// The HTTP status that tells a client what to do: 409 for a lock that is busy or was used up by
    /// [`once`](crate::LockRequest::once), 422 for other input, 429 when too many calls wait, 503 when the server can't be used or this
    /// process ends, 500 for the others.
    ///
    /// Don't send the error's text: it names the key, and the host and process of the holder.
    ///
    /// ```
    /// assert_eq!(redis_locks::LockError::Shutdown.http_status(), 503);
    /// ```
    #[must_use]
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Busy { .. } | Self::Done { .. } | Self::Superseded { .. } => 409,
            Self::Mismatch { .. } => 422,
            Self::Crowded { .. } => 429,
            Self::Backend { .. } | Self::Shutdown => 503,
            _ => 500,
        }
    }

    /// The status code of gRPC: 10 `ABORTED` for a lock that is busy, 3 `INVALID_ARGUMENT` for other input, 6 `ALREADY_EXISTS` for what was done
    /// [`once`](crate::LockRequest::once), 8 `RESOURCE_EXHAUSTED` when too many calls wait, 14 `UNAVAILABLE` when the
    /// server can't be used or this process ends, 13 `INTERNAL` for the others.
    ///
    /// ```
    /// assert_eq!(redis_locks::LockError::Shutdown.grpc_code(), 14);
    /// ```
    #[must_use]
    pub fn grpc_code(&self) -> i32 {
        match self {
            Self::Busy { .. } | Self::Superseded { .. } => 10,
            Self::Mismatch { .. } => 3,
            Self::Done { .. } => 6,
            Self::Crowded { .. } => 8,
            Self::Backend { .. } | Self::Shutdown => 14,
            _ => 13,
        }
    }
}
