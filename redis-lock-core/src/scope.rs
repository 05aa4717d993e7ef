//! Bodies that run under a lock.

use crate::{Guard, LockError};

pub(crate) async fn run<T, F>(guard: Guard, body: F) -> Result<T, LockError>
where
    F: AsyncFnOnce(&Guard) -> T,
{
    let value = body(&guard).await;
    let _ = guard.release().await;
    Ok(value)
}

pub(crate) fn blocking_run<T>(
    guard: Guard,
    body: impl FnOnce(&Guard) -> T,
) -> Result<T, LockError> {
    let value = body(&guard);
    let _ = guard.blocking_release();
    Ok(value)
}
