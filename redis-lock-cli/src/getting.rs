//! Requests for locks, as `run`, `acquire` and `release` make them.

use redis_lock_core::{Guard, LockError, LockRequest, Locks, Wait};

use crate::args::{Getting, Kind};
use crate::exit::{Code, Failure};

/// A request for a lock of this kind.
pub(crate) fn request(locks: &Locks, key: &str, kind: &Kind) -> LockRequest {
    match kind {
        Kind { permits: Some(limit), .. } => locks.permit(key, *limit),
        Kind { read: true, .. } => locks.read(key),
        Kind { .. } => locks.mutex(key),
    }
}

/// Acquires it.
pub(crate) async fn get(mut request: LockRequest, getting: &Getting) -> Result<Guard, Failure> {
    let wait = getting.wait();
    if let Some(most) = getting.queue {
        if matches!(wait, Wait::None) {
            return Err(Failure::Usage("--queue can't be used with --wait none".into()));
        }
        request = request.queue(most.get());
    }
    if let Some(limit) = getting.outage {
        request = request.outage(limit);
    }
    request.wait(wait).acquire().await.map_err(|error| {
        let code = match error {
            LockError::Superseded { .. } => Code::SUPERSEDED.0,
            _ if error.is_busy() => getting.conflict_exit_code,
            _ => return error.into(),
        };
        Failure::Busy { error, code, quiet: getting.quiet }
    })
}
