//! The one call that an annotated function makes: acquire, run, release, report.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::attribute::output::{Fallible, FromLockError};
use crate::scope::Held;
use crate::{Guard, LockError, Request};

/// The surroundings of one call: the lock once it is taken, and how failures are reported.
///
/// The body runs inside and takes the lock itself, so that keys and arguments live where they are
/// dropped before the release.
pub struct Scope<R, C = fn(LockError) -> R> {
    held: Held,
    is_own_error: fn(&R) -> bool,
    failed: C,
}

/// A scope whose failures are errors of the function's own type.
pub fn scope<R: Fallible<Error: FromLockError>>(label: &'static str) -> Scope<R> {
    let failed = |error| R::from_error(FromLockError::from_lock_error(error));
    Scope { held: Held::labelled(label), is_own_error: R::is_error, failed }
}

/// A scope whose failures are what `on_error` makes of them.
pub fn scope_or<R, C: Fn(LockError) -> R>(
    label: &'static str,
    is_own_error: fn(&R) -> bool,
    on_error: C,
) -> Scope<R, C> {
    Scope { held: Held::labelled(label), is_own_error, failed: on_error }
}

impl<R, C: Fn(LockError) -> R> Scope<R, C> {
    /// Lets the body run to its end when the lock is lost, and keeps its value.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.held.finishes = true;
        self
    }

    /// Does not wait for the server's word on the release.
    #[must_use]
    pub fn background(mut self) -> Self {
        self.held.in_background = true;
        self
    }

    /// Takes the lock. From here to the end of the body this task holds it.
    ///
    /// # Errors
    /// Those of the request, and of its making.
    pub fn acquire(
        &self,
        request: Result<Request, LockError>,
    ) -> impl Future<Output = Result<&Guard, LockError>> {
        // At once, and not when polled: the request would have to live in the future until then.
        self.held.acquire(self.held.begin(request))
    }

    /// [`acquire`](Self::acquire) for a body that blocks.
    ///
    /// # Errors
    /// As `acquire`.
    pub fn blocking_acquire(
        &self,
        request: Result<Request, LockError>,
    ) -> Result<&Guard, LockError> {
        self.held.blocking_acquire(request)
    }

    /// What the function returns when the lock failed.
    pub fn failed(&self, error: LockError) -> R {
        (self.failed)(error)
    }

    /// The body's value, or what stands in its place when the lock was lost before its end.
    fn settle(&self, value: R, lost: Option<LockError>) -> R {
        match lost {
            Some(error) if !(self.is_own_error)(&value) => self.failed(error),
            _ => value,
        }
    }
}

/// Runs the body that takes the scope's lock, and releases it.
///
/// The body is checked before each poll: once the lock is lost, it is dropped and never polled
/// again. It has always been dropped when the release begins.
pub async fn run<R, C, F>(scope: &Scope<R, C>, mut body: Pin<&mut Option<F>>) -> R
where
    C: Fn(LockError) -> R,
    F: Future<Output = R>,
{
    let ended = scope.held.watch(body.as_mut()).await;
    let lost = scope.held.loss();
    body.set(None);
    let lost = scope.held.released(lost).await;
    match ended {
        Ok(value) => scope.settle(value, lost),
        Err(error) => scope.failed(error),
    }
}

/// [`run`] for a body that blocks. It cannot be stopped: when the lock is lost it runs on, and its
/// success becomes an error.
pub fn blocking_run<R, C, F>(scope: &Scope<R, C>, body: F) -> R
where
    C: Fn(LockError) -> R,
    F: FnOnce() -> R,
{
    let value = scope.held.within(body);
    let lost = scope.held.loss();
    let lost = crate::blocking::block_on(scope.held.released(lost));
    scope.settle(value, lost)
}

impl<R, C> fmt::Debug for Scope<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("held", &self.held).finish_non_exhaustive()
    }
}

/// The number of a lock that was asked for with one.
pub fn fence(guard: &Guard) -> u64 {
    // A fenced acquisition without a number fails, so the default is never seen.
    guard.fence().unwrap_or_default()
}
