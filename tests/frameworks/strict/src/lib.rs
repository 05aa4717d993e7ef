//! A crate that forbids what can be forbidden, has no prelude, and has items with names that a
//! careless expansion would use by mistake.
#![no_implicit_prelude]
#![forbid(unused, unsafe_code, missing_docs, unreachable_pub, unused_qualifications)]
#![forbid(unused_variables, unused_imports, unused_mut, unused_braces, unused_parens)]
#![forbid(unreachable_code, dead_code, elided_lifetimes_in_paths, single_use_lifetimes)]
#![forbid(clippy::all)]

use ::redis_locks::{KeySegment, LockError, Locks, redis_lock};
use ::std::string::String;

/// A number.
pub static SCOPE: u32 = 1;

macro_rules! odd {
    ($($name:ident)+) => {$(
        /// A constant with the name of a local variable.
        #[doc(hidden)]
        pub const $name: u32 = 1;
    )+};
}

#[expect(non_upper_case_globals, reason = "that is the point")]
mod odd_names {
    odd!(__scope __locks __body __value __request __error __key __arg0 __guard);
}

pub use odd_names::*;

/// Not the one of the standard library.
pub mod std {}
/// Not the one of the standard library.
pub mod core {}
/// Not the one of the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Result;
/// Not the one of the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Some;
/// Not the one of the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Ok;

type R<T> = ::core::result::Result<T, LockError>;

/// A key.
#[derive(KeySegment)]
pub struct Shelf {
    /// The first part.
    pub place: Place,
    /// The second part.
    pub number: u32,
}

/// A place.
#[derive(KeySegment)]
#[non_exhaustive]
pub enum Place {
    /// One.
    North,
    /// Another.
    South,
}

/// A pair.
pub struct Pair<T>(pub T, pub String);

/// Only the key uses what is in the pattern.
#[redis_lock(key = "a:{id}:{SCOPE}", ttl = "30s", wait = "5s", max_hold = "1m")]
pub async fn m09_everything_is_forbidden(id: u32, Pair(_x, name): Pair<u32>) -> R<String> {
    ::core::result::Result::Ok(name)
}

/// Only `on_error` uses `id`.
#[redis_lock(key = "a", on_error = |_| ::std::format!("{id}"))]
pub async fn m09_names_only_a_handler_uses(Pair(id, _): Pair<u32>) -> String {
    String::new()
}

/// Everything at once.
#[redis_lock(key("a:{x}:{shelf}", x = pair.0), via = locks, fence = token, guard = lock, on_busy = ::core::result::Result::Ok(0))]
pub fn blocking(locks: &Locks, pair: &Pair<u32>, shelf: &Shelf) -> R<u64> {
    lock.ensure(::core::time::Duration::ZERO)?;
    ::core::result::Result::Ok(token)
}

/// A handler of a function that blocks.
#[redis_lock(keys = ["a:{id}", "b:{id}"], on_error = |_| 0)]
pub fn blocking_with_handler(mut id: u32) -> u32 {
    id += 1;
    id
}

/// Options that may leave the function, and a pattern that borrows mutably.
#[redis_lock(key("a:{}", if id > 1 { return ::core::result::Result::Err(LockError::NotConfigured) } else { id }), wait = wait)]
pub fn leaving(id: u32, wait: ::core::time::Duration, Pair(ref mut n, _): Pair<u32>) -> R<u32> {
    *n += id;
    ::core::result::Result::Ok(*n)
}

/// A handler sees references.
#[redis_lock(key = "a:{id}", via = locks, on_error = |_| *n + *m)]
pub async fn borrowing(
    id: u32,
    locks: &Locks,
    Pair(n, _): &Pair<u32>,
    Pair(ref m, _): Pair<u32>,
) -> u32 {
    *n - *m
}

/// The same of a function that blocks.
#[redis_lock(keys = keys, via = locks, on_error = |_| *n + *m)]
pub fn blocking_borrowing(
    keys: ::std::vec::Vec<String>,
    locks: &Locks,
    Pair(n, _): &Pair<u32>,
    Pair(ref m, _): Pair<u32>,
) -> u32 {
    *n - *m
}

/// A future that is made in several statements.
#[redis_lock(key = "a:{id}")]
pub fn future(id: u32) -> impl ::core::future::Future<Output = R<u32>> {
    let more = id + 1;
    async move { ::core::result::Result::Ok(more) }
}

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(u32);

impl Counter {
    /// Counts.
    #[redis_lock(key = "counter", on_error = |_| self.0)]
    pub async fn count(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }
}
