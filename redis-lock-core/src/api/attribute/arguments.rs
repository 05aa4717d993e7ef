//! The arguments of an annotated function: whether the body is boxed for them, and what `on_error`
//! may use.

use std::borrow::Cow;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZero;
use std::ops::Deref;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use crate::{LockKey, Locks};

/// A type whose values take a few machine words. An argument stands in the future of an annotated
/// function more than once, so the body is boxed unless all of its arguments are small.
pub trait Small {}

/// The arguments of a call, by their types.
#[derive(Debug)]
pub struct Sizes<T>(AnySizes<T>);

/// Arguments of which at least one may be large.
#[derive(Debug)]
pub struct AnySizes<T>(PhantomData<fn() -> T>);

impl<T> Copy for AnySizes<T> {}

impl<T> Clone for AnySizes<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Sizes<T> {
    /// Of arguments of these types.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only the macro makes one")]
    pub const fn new() -> Self {
        Self(AnySizes(PhantomData))
    }
}

impl<T: Small> Sizes<T> {
    /// Leaves the body where it is.
    pub fn place<F>(self, body: F) -> F {
        body
    }
}

impl<T> AnySizes<T> {
    /// Boxes the body.
    pub fn place<F>(self, body: F) -> Pin<Box<F>> {
        Box::pin(body)
    }
}

impl<T> Deref for Sizes<T> {
    type Target = AnySizes<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

macro_rules! small {
    ($($ty:ty),+) => {$(
        impl Small for $ty {}
    )+};
}

small!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, bool, char, ());
small!(String, OsString, PathBuf, Uuid, Duration, Instant, SystemTime, LockKey, Locks);
small!(IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr);

macro_rules! small_around {
    ($($ty:ty),+) => {$(
        impl<T: ?Sized> Small for $ty {}
    )+};
}

small_around!(&T, &mut T, *const T, *mut T, Box<T>, Rc<T>, Arc<T>);

impl<T> Small for Vec<T> {}
impl<T: Small> Small for Option<T> {}
impl<T: Small, U: Small> Small for (T, U) {}
impl Small for Cow<'_, str> {}
impl Small for NonZero<u32> {}
impl Small for NonZero<u64> {}

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
