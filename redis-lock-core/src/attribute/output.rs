//! How a lock failure becomes what the annotated function returns.

use std::marker::PhantomData;
use std::pin::Pin;

use crate::LockError;

/// A return type that has a place for an error: `Result`.
#[diagnostic::on_unimplemented(
    message = "a `#[redis_lock]` function must return `Result`, but this one returns `{Self}`",
    label = "has no place for a `LockError`",
    note = "taking the lock can fail, and the caller has to learn of it: return `Result<{Self}, LockError>`",
    note = "or keep the type and say what to return then: `on_error = |err| …`"
)]
pub trait Fallible: Sized {
    /// What it can carry.
    type Error;

    /// The return value of a call that failed.
    fn from_error(error: Self::Error) -> Self;

    /// Whether the function failed by itself.
    fn is_error(&self) -> bool;
}

#[diagnostic::do_not_recommend]
impl<T, E> Fallible for Result<T, E> {
    type Error = E;

    fn from_error(error: E) -> Self {
        Err(error)
    }

    fn is_error(&self) -> bool {
        self.is_err()
    }
}

/// An error type that can carry a [`LockError`]. Implement `From<LockError>` to have it.
#[diagnostic::on_unimplemented(
    message = "`#[redis_lock]` cannot turn a `LockError` into `{Self}`",
    label = "the error type `{Self}` does not implement `From<LockError>`",
    note = "with thiserror, add a variant to `{Self}`: `#[error(transparent)] Lock(#[from] LockError)`",
    note = "or say what to return then: `on_error = |err| …`"
)]
pub trait FromLockError {
    /// The error that carries `error`.
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> FromLockError for E {
    fn from_lock_error(error: LockError) -> Self {
        error.into()
    }
}

/// Asks a return type whether a value of it is the function's own error. `Result` answers by its
/// inherent function, everything else by [`AnyOutput`].
#[derive(Debug)]
pub struct Output<R>(PhantomData<R>);

impl<T, E> Output<Result<T, E>> {
    /// Whether the function failed by itself.
    pub fn is_own_error(value: &Result<T, E>) -> bool {
        value.is_err()
    }
}

impl<P> Output<Pin<P>> {
    /// Not asked: a boxed future is refused, also behind an alias.
    pub fn is_own_error(_: &Pin<P>) -> bool
    where
        P: SeenInto,
    {
        false
    }
}

/// Implemented by nothing: a future that is only returned cannot be locked while it runs.
#[diagnostic::on_unimplemented(
    message = "`#[redis_lock]` cannot see into the future that this function returns",
    label = "the lock would be released before it runs",
    note = "write `async fn`, or spell the return type `Pin<Box<dyn Future<Output = …>>>` and end with `Box::pin(async move {{ … }})`"
)]
pub trait SeenInto {}

/// The answer of types that cannot carry an error.
pub trait AnyOutput {
    /// What is returned.
    type Value;

    /// Never an error.
    fn is_own_error(_: &Self::Value) -> bool {
        false
    }
}

impl<R> AnyOutput for Output<R> {
    type Value = R;
}

/// The answer where the type is not named.
pub fn never_own_error<R>(_: &R) -> bool {
    false
}
