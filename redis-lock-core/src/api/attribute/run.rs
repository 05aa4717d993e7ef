//! What an annotated function calls with its body: the part that differs with the body's type.

use std::fmt;
use std::future::Future;
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
pub fn run<'a, R, F: Future<Output = R>>(
    scope: &'a Scope,
    ending: Ending<R>,
    body: Pin<&'a mut Option<F>>,
) -> Run<'a, R, F> {
    Run { ending, call: Call { scope, life: scope.lead(), value: None, body } }
}

/// [`run`] for a function that says itself what it returns when the lock failed.
pub fn run_or<'a, R, F: Future<Output = R>>(
    scope: &'a Scope,
    is_own_error: fn(&R) -> bool,
    body: Pin<&'a mut Option<F>>,
) -> RunOr<'a, R, F> {
    RunOr { is_own_error, call: Call { scope, life: scope.lead(), value: None, body } }
}

/// Resolves to what the function returns. See [`run`].
///
/// Not an `async fn`: each annotated function has its own, and what is written by hand costs its
/// build less.
pub struct Run<'a, R, F> {
    ending: Ending<R>,
    call: Call<'a, R, F>,
}

/// Resolves to what the body returned, or to what the lock failed with. See [`run_or`].
pub struct RunOr<'a, R, F> {
    is_own_error: fn(&R) -> bool,
    call: Call<'a, R, F>,
}

struct Call<'a, R, F> {
    scope: &'a Scope,
    life: Life<'a>,
    value: Option<R>,
    body: Pin<&'a mut Option<F>>,
}

// The value is moved out, and the body is pinned elsewhere.
impl<R, F> Unpin for Run<'_, R, F> {}
impl<R, F> Unpin for RunOr<'_, R, F> {}

impl<R, F: Future<Output = R>> Future for Run<'_, R, F> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let Poll::Ready(failure) = self.call.step(context) else { return Poll::Pending };
        let value = self.call.value.take();
        Poll::Ready((self.ending.0)(value, failure))
    }
}

impl<R, F: Future<Output = R>> Future for RunOr<'_, R, F> {
    type Output = Result<R, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(failure) = self.call.step(context) else { return Poll::Pending };
        let value = self.call.value.take();
        Poll::Ready(settle(value, failure, self.is_own_error))
    }
}

impl<R, F: Future<Output = R>> Call<'_, R, F> {
    fn step(&mut self, context: &mut Context<'_>) -> Poll<Option<LockError>> {
        let Self { scope, life, value, body } = self;
        scope.step(life, &mut |context| poll_or_drop(body.as_mut(), value, context), context)
    }
}

/// Polls the body, or drops it when there is no context. Tells whether it has ended by itself.
fn poll_or_drop<F: Future>(
    mut body: Pin<&mut Option<F>>,
    value: &mut Option<F::Output>,
    context: Option<&mut Context<'_>>,
) -> bool {
    let Some(context) = context else {
        body.set(None);
        return false;
    };
    if let Some(body) = body.as_pin_mut()
        && let Poll::Ready(returned) = body.poll(context)
    {
        *value = Some(returned);
        return true;
    }
    false
}

impl<R, F> fmt::Debug for Run<'_, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

impl<R, F> fmt::Debug for RunOr<'_, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOr").finish_non_exhaustive()
    }
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
