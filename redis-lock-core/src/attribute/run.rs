//! What an annotated function calls with its body: the part that differs with the body's type.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::enter::{Life, Scope};
use super::output::{Fallible, FromLockError};
use crate::{Guard, LockError};

/// Runs the body that asks for the scope's lock, and releases the lock.
///
/// The body is checked before each poll: once the lock is lost, it is dropped and never polled
/// again. It has always been dropped when the release begins.
pub async fn run<R, F>(scope: &Scope, mut body: Pin<&mut Option<F>>) -> R
where
    R: Fallible<Error: FromLockError>,
    F: Future<Output = R>,
{
    let mut life = scope.lead();
    let mut value = None;
    let failure =
        poll_fn(|context| step(scope, &mut life, body.as_mut(), &mut value, context)).await;
    match settle(value, failure, R::is_error) {
        Ok(value) => value,
        Err(error) => failed(error),
    }
}

/// [`run`] for a function that says itself what it returns when the lock failed.
///
/// # Errors
/// What the lock failed with.
pub async fn run_or<R, F>(
    scope: &Scope,
    is_own_error: fn(&R) -> bool,
    mut body: Pin<&mut Option<F>>,
) -> Result<R, LockError>
where
    F: Future<Output = R>,
{
    let mut life = scope.lead();
    let mut value = None;
    let failure =
        poll_fn(|context| step(scope, &mut life, body.as_mut(), &mut value, context)).await;
    settle(value, failure, is_own_error)
}

fn step<F: Future>(
    scope: &Scope,
    life: &mut Life<'_>,
    mut body: Pin<&mut Option<F>>,
    value: &mut Option<F::Output>,
    context: &mut Context<'_>,
) -> Poll<Option<LockError>> {
    let mut poll_or_drop = |context: Option<&mut Context<'_>>| {
        let Some(context) = context else {
            body.set(None);
            return false;
        };
        if let Some(body) = body.as_mut().as_pin_mut()
            && let Poll::Ready(returned) = body.poll(context)
        {
            *value = Some(returned);
            return true;
        }
        false
    };
    scope.step(life, &mut poll_or_drop, context)
}

/// The body's value, or what stands in its place when the lock was lost before its end.
fn settle<R>(
    value: Option<R>,
    failure: Option<LockError>,
    is_own_error: fn(&R) -> bool,
) -> Result<R, LockError> {
    match (value, failure) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if is_own_error(&value) => Ok(value),
        (_, Some(error)) => Err(error),
        // A call without failure ends with its body, so there is a value.
        (None, None) => Err(LockError::Shutdown),
    }
}

/// [`run`] for a body that blocks. It cannot be stopped: when the lock is lost it runs on, and its
/// success becomes an error.
pub fn blocking_run<R, F>(scope: &Scope, body: F) -> R
where
    R: Fallible<Error: FromLockError>,
    F: FnOnce() -> R,
{
    match scope.within(body) {
        (value, Some(error)) if !value.is_error() => failed(error),
        (value, _) => value,
    }
}

/// [`blocking_run`] for a function that says itself what it returns when the lock failed.
///
/// # Errors
/// What the lock failed with.
pub fn blocking_run_or<R, F>(
    scope: &Scope,
    is_own_error: fn(&R) -> bool,
    body: F,
) -> Result<R, LockError>
where
    F: FnOnce() -> Result<R, LockError>,
{
    let (value, lost) = scope.within(body);
    settle(Some(value?), lost, is_own_error)
}

/// What a function returns when the lock failed.
pub fn failed<R: Fallible<Error: FromLockError>>(error: LockError) -> R {
    R::from_error(FromLockError::from_lock_error(error))
}

/// What `on_error` makes of a failure.
pub fn handled<R, C: FnOnce(LockError) -> R>(error: LockError, on_error: C) -> R {
    on_error(error)
}

/// Calls a closure that returns what is expected of it, so that its body is coerced to that.
pub fn call<R, F: FnOnce() -> R>(body: F) -> R {
    body()
}

/// The number of a lock that was asked for with one.
pub fn fence(guard: &Guard) -> u64 {
    // A fenced acquisition without a number fails, so the default is never seen.
    guard.fence().unwrap_or_default()
}
