//! What an annotated function calls with its body: the part that differs with the body's type.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::enter::{Life, Scope};
use super::output::{Fallible, FromLockError};
use super::values::Codec;
use crate::domain::value::Finish;
use crate::{Guard, LockError};

/// How a function without `on_error` ends: with its own value, or with the lock's failure. One for
/// each return type.
pub struct Ending<R> {
    failed: fn(LockError) -> R,
    is_own_error: fn(&R) -> bool,
    codec: Option<Codec<R>>,
}

/// The ending of a function that returns this type. Only here is a trait required of the type.
#[must_use]
pub fn ending<R: Fallible<Error: FromLockError>>() -> Ending<R> {
    let failed = |error| R::from_error(FromLockError::from_lock_error(error));
    Ending { failed, is_own_error: R::is_error, codec: None }
}

impl<R> Ending<R> {
    /// The same for a function whose value other calls get.
    #[must_use]
    pub fn with(self, codec: Codec<R>) -> Self {
        Self { codec: Some(codec), ..self }
    }

    /// What a function that blocks returns when it did not get the lock: the value of the call that has done
    /// it, or what the function makes of the error.
    pub fn refused(&self, scope: &Scope, error: LockError) -> R {
        let Some(codec) = self.codec else { return self.failed(error) };
        refused(scope, codec, error).unwrap_or_else(self.failed)
    }

    /// What the function returns when the lock failed.
    pub fn failed(&self, error: LockError) -> R {
        (self.failed)(error)
    }
}

impl<R> fmt::Debug for Ending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").finish_non_exhaustive()
    }
}

/// A value of any type, in a place that is never reached: it tells rustc the type.
#[must_use]
pub fn never<R>() -> R {
    loop {
        std::thread::park();
    }
}

/// The return value of a function whose own error ended it while the request was made.
pub fn own_failure<R: Fallible>(error: R::Error) -> R {
    R::from_error(error)
}

/// Runs the body under the scope's lock, and releases the lock.
///
/// The lock is checked before each poll: once it is lost, the body is never polled again. The body
/// has ended, or been dropped by the function whose variable it is, when the release begins.
pub fn run<'a, R, F: Future<Output = R>>(
    scope: &'a Scope,
    ending: Ending<R>,
    body: Pin<&'a mut F>,
) -> Run<'a, R, F> {
    let Ending { failed, is_own_error, codec } = ending;
    let mut ended = run_or(scope, is_own_error, body);
    codec.into_iter().for_each(|codec| scope.set_reads(codec.reads));
    ended.codec = codec;
    Run { ended, failed }
}

/// [`run`] for a function that says itself what it returns when the lock failed.
pub fn run_or<'a, R, F: Future<Output = R>>(
    scope: &'a Scope,
    is_own_error: fn(&R) -> bool,
    body: Pin<&'a mut F>,
) -> RunOr<'a, R, F> {
    let call = Call { scope, life: scope.lead(), value: None };
    RunOr { body, is_own_error, codec: None, call }
}

/// [`run_or`] for a function whose value other calls get.
pub fn run_or_with<'a, R, F: Future<Output = R>>(
    scope: &'a Scope,
    is_own_error: fn(&R) -> bool,
    codec: Codec<R>,
    body: Pin<&'a mut F>,
) -> RunOr<'a, R, F> {
    let mut run = run_or(scope, is_own_error, body);
    scope.set_reads(codec.reads);
    run.codec = Some(codec);
    run
}

/// The value of the call that has done it, for a function that did not get the lock.
///
/// # Errors
/// The error, if it is another one, or if the value can't be read.
pub fn refused<R>(scope: &Scope, codec: Codec<R>, error: LockError) -> Result<R, LockError> {
    match scope.take_value() {
        Some(value) => (codec.read)(&value, error),
        None => Err(error),
    }
}

/// Resolves to what the function returns. See [`run`].
///
/// Not an `async fn`: each annotated function has its own, and what is written by hand costs its
/// build less.
pub struct Run<'a, R, F> {
    ended: RunOr<'a, R, F>,
    failed: fn(LockError) -> R,
}

/// Resolves to what the body returned, or to what the lock failed with. See [`run_or`].
pub struct RunOr<'a, R, F> {
    body: Pin<&'a mut F>,
    is_own_error: fn(&R) -> bool,
    codec: Option<Codec<R>>,
    call: Call<'a, R>,
}

// The value is moved out, and the body is pinned elsewhere.
impl<R, F> Unpin for RunOr<'_, R, F> {}

impl<R, F: Future<Output = R>> Future for Run<'_, R, F> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let Self { ended, failed } = &mut *self;
        Pin::new(ended).poll(context).map(|ended| ended.unwrap_or_else(*failed))
    }
}

impl<R, F: Future<Output = R>> Future for RunOr<'_, R, F> {
    type Output = Result<R, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { is_own_error, codec, call, body } = &mut *self;
        let ended = call.step(*is_own_error, *codec, body.as_mut(), context);
        ended.map(|failure| match (*codec, failure) {
            (Some(codec), Some(error)) if call.value.is_none() => refused(call.scope, codec, error),
            (_, failure) => settle(call.value.take(), failure, *is_own_error),
        })
    }
}

/// What a call needs besides its body: the same for all functions with one return type.
struct Call<'a, R> {
    scope: &'a Scope,
    life: Life<'a>,
    value: Option<R>,
}

impl<R> Call<'_, R> {
    fn step(
        &mut self,
        is_own_error: fn(&R) -> bool,
        codec: Option<Codec<R>>,
        mut body: Pin<&mut dyn Future<Output = R>>,
        context: &mut Context<'_>,
    ) -> Poll<Option<LockError>> {
        let Self { scope, life, value } = self;
        let mut poll = |context: &mut Context<'_>| {
            body.as_mut()
                .poll(context)
                .map(|returned| finish(scope, is_own_error, codec, value.insert(returned)))
        };
        scope.step(life, &mut poll, context)
    }
}

impl<R> Drop for Call<'_, R> {
    /// The function drops the body next.
    fn drop(&mut self) {
        self.scope.leaves();
    }
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

/// How a hold ends whose body has returned this.
fn finish<R>(
    scope: &Scope,
    is_own_error: fn(&R) -> bool,
    codec: Option<Codec<R>>,
    value: &R,
) -> Finish {
    match (codec, scope.guard()) {
        (Some(codec), Some(guard)) if !is_own_error(value) => (codec.finish)(guard, value),
        _ => Finish::of_body(!is_own_error(value)),
    }
}

/// The body's value, or what is returned instead when the lock was lost before its end.
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
    ending.codec.iter().for_each(|codec| scope.set_reads(codec.reads));
    let (value, lost) =
        scope.within(body, |value| finish(scope, ending.is_own_error, ending.codec, value));
    settle(Some(value), lost, ending.is_own_error).unwrap_or_else(ending.failed)
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
    let finish = |value: &Result<R, _>| match value {
        Ok(value) => finish(scope, is_own_error, None, value),
        Err(_) => Finish::Release,
    };
    let (value, lost) = scope.within(body, finish);
    settle(Some(value?), lost, is_own_error)
}

/// [`blocking_run_or`] for a function whose value other calls get.
///
/// # Errors
/// What the lock failed with, where no value can be had.
pub fn blocking_run_or_with<R, F>(
    scope: &Scope,
    is_own_error: fn(&R) -> bool,
    codec: Codec<R>,
    body: F,
) -> Result<R, LockError>
where
    F: FnOnce() -> Result<R, LockError>,
{
    scope.set_reads(codec.reads);
    let finish = |value: &Result<R, _>| match value {
        Ok(value) => finish(scope, is_own_error, Some(codec), value),
        Err(_) => Finish::Release,
    };
    match scope.within(body, finish) {
        (Err(error), _) => refused(scope, codec, error),
        (Ok(value), lost) => settle(Some(value), lost, is_own_error),
    }
}

/// The outcome of a body that has been dropped. The code after this call does not run under the
/// lock.
///
/// # Errors
/// As `ended`.
pub fn left<R>(scope: &Scope, ended: Result<R, LockError>) -> Result<R, LockError> {
    scope.left();
    ended
}

/// The value that `on_error` returns for a failure.
pub fn handled<R, C: FnOnce(LockError) -> R>(error: LockError, on_error: C) -> R {
    on_error(error)
}

/// Calls a closure that returns what is expected of it, so that its body is coerced to that.
pub fn call<R, F: FnOnce() -> R>(body: F) -> R {
    body()
}

/// The fencing number of a lock that was requested as fenced.
pub fn fence(guard: &Guard) -> u64 {
    // A fenced acquisition without a number fails, so the default is never seen.
    guard.fence().unwrap_or_default()
}

/// The number of a permit that was requested as slotted.
pub fn slot(guard: &Guard) -> u32 {
    // A slotted acquisition without a number fails, so the default is never seen.
    guard.slot().unwrap_or_default()
}

/// A value that outlives the body that it is given to: what `on_error` may use of a destructured
/// argument.
#[diagnostic::on_unimplemented(
    message = "`on_error` cannot use a value of type `{Self}`, which the body owns",
    label = "dropped with the body, before `on_error` is asked",
    note = "`on_error` may use arguments that are references or `Copy`; what else it needs can be had from the `LockError`, such as its key"
)]
pub trait Kept: Sized {
    /// The value.
    fn kept(&self) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Copy> Kept for T {
    fn kept(&self) -> Self {
        *self
    }
}

/// Keeps a copy for `on_error`.
pub fn kept<T: Kept>(value: &T) -> T {
    value.kept()
}
