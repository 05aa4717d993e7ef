//! What an annotated function calls with its body: the part that differs with the body's type.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::enter::{Life, Scope};
use super::output::{Fallible, FromLockError};
use crate::{Guard, LockError};

/// How a function without `on_error` ends: with its own value, or with the lock's failure. One for
/// each return type.
pub struct Ending<R>(fn(Option<R>, Option<LockError>) -> R);

/// The ending of a function that returns this type. The one place that asks something of it.
#[must_use]
pub fn ending<R: Fallible<Error: FromLockError>>() -> Ending<R> {
    Ending(|value, failure| {
        let failed = |error| R::from_error(FromLockError::from_lock_error(error));
        settle(value, failure, R::is_error).unwrap_or_else(failed)
    })
}

impl<R> Ending<R> {
    /// What the function returns when the lock failed.
    pub fn failed(&self, error: LockError) -> R {
        (self.0)(None, Some(error))
    }
}

impl<R> fmt::Debug for Ending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").finish_non_exhaustive()
    }
}

/// Runs the body that asks for the scope's lock, and releases the lock.
///
/// The body is checked before each poll: once the lock is lost, it is dropped and never polled
/// again. It has always been dropped when the release begins.
pub async fn run<R, F>(scope: &Scope, ending: Ending<R>, mut body: Pin<&mut Option<F>>) -> R
where
    F: Future<Output = R>,
{
    let mut life = scope.lead();
    let mut value = None;
    let failure =
        poll_fn(|context| step(scope, &mut life, body.as_mut(), &mut value, context)).await;
    (ending.0)(value, failure)
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
pub fn blocking_run<R, F>(scope: &Scope, ending: &Ending<R>, body: F) -> R
where
    F: FnOnce() -> R,
{
    let (value, lost) = scope.within(body);
    (ending.0)(Some(value), lost)
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
