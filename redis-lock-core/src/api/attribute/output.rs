//! How a lock failure becomes what the annotated function returns.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use crate::LockError;

/// A return type that has a place for an error: `Result`.
#[diagnostic::on_unimplemented(
    message = "a `#[redis_lock]` function must return `Result`, but this one returns `{Self}`",
    label = "has no place for a `LockError`",
    note = "taking the lock can fail, and the caller has to learn of it: return `Result<{Self}, LockError>`",
    note = "or keep the type and say what to return then: `on_error = |err| …`"
)]
#[doc(hidden)]
pub trait Fallible: Sized {
    /// The error type.
    type Error;

    /// The return value of a call that failed.
    fn from_error(error: Self::Error) -> Self;

    /// Whether the function returned an error.
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

/// An error type that can carry a [`LockError`]. `From<LockError>` implements it.
#[diagnostic::on_unimplemented(
    message = "`#[redis_lock]` cannot turn a `LockError` into `{Self}`",
    label = "the error type `{Self}` does not implement `From<LockError>`",
    note = "say what to return then: `on_error = |err| …`",
    note = "or, where `{Self}` is a type of yours, implement it; with thiserror, add a variant: `#[error(transparent)] Lock(#[from] LockError)`"
)]
#[doc(hidden)]
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

/// Asks a return type what it is: something that holds a future, or else a `Result`, or else what can
/// be awaited, or else the rest. Each derefs to the next, and rustc takes the first that has the
/// method.
#[derive(Debug)]
pub struct Output<R>(ResultOutput<R>);

/// An [`Output`] that holds no future, as far as its type says.
#[derive(Debug)]
pub struct ResultOutput<R>(FutureOutput<R>);

/// An [`Output`] that is no `Result`.
#[derive(Debug)]
pub struct FutureOutput<R>(AnyOutput<R>);

/// An [`Output`] that is neither a `Result` nor a future.
#[derive(Debug)]
pub struct AnyOutput<R>(PhantomData<fn() -> R>);

/// A future in a box, or a value with one inside, which does not run yet.
pub trait HoldsFuture {}

impl<F: Future + ?Sized> HoldsFuture for Box<F> {}
impl<P> HoldsFuture for Pin<P> where Self: Future {}
impl<T: HoldsFuture> HoldsFuture for Option<T> {}
impl<T: HoldsFuture> HoldsFuture for Vec<T> {}
impl<T: HoldsFuture, E> HoldsFuture for Result<T, E> {}
impl<T: HoldsFuture, const N: usize> HoldsFuture for [T; N] {}
impl<T: HoldsFuture> HoldsFuture for Arc<T> {}
impl<T: HoldsFuture> HoldsFuture for Rc<T> {}
impl<T: HoldsFuture> HoldsFuture for VecDeque<T> {}
impl<K, T: HoldsFuture> HoldsFuture for BTreeMap<K, T> {}
impl<K, T: HoldsFuture, S> HoldsFuture for HashMap<K, T, S> {}

impl<R> Output<R> {
    /// Of the type that is named.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Self {
        Self(ResultOutput(FutureOutput(AnyOutput(PhantomData))))
    }
}

impl<R: HoldsFuture> Output<R> {
    /// Refused: that future would run without the lock.
    #[must_use]
    pub fn own_error(&self) -> fn(&R) -> bool
    where
        R: SeenInto,
    {
        |_| false
    }

    /// Refused, as part of what the function returns.
    pub fn holds_no_future(&self)
    where
        R: SeenInto,
    {
    }
}

impl<T: HoldsFuture, E> Output<Result<T, E>> {
    /// Refused. What is no `Result` is refused where a function has to return one.
    pub fn result_holds_no_future(&self)
    where
        Result<T, E>: SeenInto,
    {
    }
}

impl<T, E> ResultOutput<Result<T, E>> {
    /// Tells whether a value is the function's own error.
    #[must_use]
    pub fn own_error(&self) -> fn(&Result<T, E>) -> bool {
        Result::is_err
    }

    /// [`own_error`](Self::own_error), of what a future yields.
    #[must_use]
    pub fn own_error_of_value(&self) -> fn(&Result<T, E>) -> bool {
        Result::is_err
    }
}

impl<R> AnyOutput<R> {
    /// Such a value is never an error. Whether it can be awaited concerns only its receiver.
    #[must_use]
    pub fn own_error_of_value(&self) -> fn(&R) -> bool {
        |_| false
    }

    /// Such a value is never an error.
    #[must_use]
    pub fn own_error(&self) -> fn(&R) -> bool {
        |_| false
    }

    /// Such a part may be returned.
    pub fn holds_no_future(&self) {}

    /// Nor is it a `Result` with a future inside.
    pub fn result_holds_no_future(&self) {}
}

impl<F: IntoFuture> FutureOutput<F> {
    /// Refused: the function would be locked only while it makes the future.
    #[must_use]
    pub fn own_error(&self) -> fn(&F) -> bool
    where
        F: SeenInto,
    {
        |_| false
    }
}

impl<R> Deref for Output<R> {
    type Target = ResultOutput<R>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<R> Deref for ResultOutput<R> {
    type Target = FutureOutput<R>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<R> Deref for FutureOutput<R> {
    type Target = AnyOutput<R>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Implemented by nothing: a future that is only returned cannot be locked while it runs.
#[diagnostic::on_unimplemented(
    message = "`#[redis_lock]` cannot see into the future that this function returns",
    label = "the lock would be released before it runs",
    note = "write `async fn`, or spell the return type `Pin<Box<dyn Future<Output = …>>>` and end with `Box::pin(async move {{ … }})`"
)]
pub trait SeenInto {}

/// The answer for a return type that is not named: of the value that is about to be returned.
pub fn output_of<R>(_: &R) -> Output<R> {
    Output::new()
}

/// The answer where the type is not named.
pub fn never_own_error<R>(_: &R) -> bool {
    false
}
