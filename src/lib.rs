//! One attribute serialises a function across a cluster, with Redis or Valkey as the arbiter.
//!
//! ```
//! use redis_locks::{LockError, Locks, redis_lock};
//!
//! #[redis_lock(key = "order:{order_id}", ttl = "30s")]
//! async fn charge(order_id: u64) -> Result<u64, LockError> {
//!     Ok(order_id) // one at a time for each order, wherever it runs
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! Locks::in_memory().install()?; // `Locks::connect("redis://…").await?` in a cluster
//! assert_eq!(charge(7).await?, 7);
//! # Ok(()) }
//! ```
//!
//! **The promise.** If an annotated function returns its own value, the lock was held from before
//! its first statement until after its last one. Otherwise the caller gets a [`LockError`]. The
//! body never runs without the lock.
//!
//! # What is where
//!
//! | To | read |
//! |---|---|
//! | lock a function | [`redis_lock`]: the attribute, its options, what it expands to |
//! | lock anything else | [`Locks`]: how to get one; [`Request`], [`Guard`] |
//! | react to a failure | [`LockError`]: its variants differ in what the caller does about them |
//! | put a type of your own into a key | [`KeySegment`] |
//! | decide on a kind, a ttl, a wait, a fence | [choosing](guide::choosing) |
//! | call it from sync code on an async runtime | [choosing, on blocking calls](guide::choosing#blocking-calls-on-an-async-runtime) |
//! | test code that locks | [testing](guide::testing) |
//! | know what is promised, and what no lock on Redis can promise | [guarantees](guide::guarantees) |
//! | see what is going on | [observability](guide::observability), [`Locks::status`], [`Locks::list`] |
//! | speak to the same locks from another language, or grant rights | [protocol](guide::protocol) |
//! | move from another library | [rslock or redlock](guide::from_rslock), [Redisson](guide::from_redisson), [ShedLock](guide::from_shedlock) |
//!
//! # Features
//!
//! | Feature | Default | What |
//! |---|---|---|
//! | `tracing` | yes | spans and events of the `tracing` crate |
//! | `metrics` | no | counters, histograms and gauges of the `metrics` crate |
//! | `rustls` | no | `rediss://` over rustls, with the platform's root certificates |
//!
//! # Requirements
//!
//! Rust 1.88. A server: Redis 6.2 or later (for mutexes 2.2), or Valkey; or none, with [`Locks::in_memory`]. Any async
//! runtime, or none: the locks live on a thread of their own.

#[cfg(any(doc, doctest))]
pub mod guide;

pub use redis_lock_core::*;

#[doc(hidden)]
pub use redis_lock_core::__private_0_1;

/// Lets values of your own types stand in key templates: newtypes, structs of several parts (joined
/// by `:`), enums without fields (by the names of their variants).
///
/// ```
/// use redis_locks::{KeySegment, LockError, redis_lock};
///
/// #[derive(KeySegment)]
/// struct OrderId(u64);
///
/// #[derive(KeySegment)]
/// struct Shelf { warehouse: Warehouse, number: u32 }
///
/// #[derive(KeySegment)]
/// enum Warehouse { North, South }
///
/// #[redis_lock(key = "pick:{order}:{shelf}")] // `pick:7:North:3`
/// async fn pick(order: OrderId, shelf: &Shelf) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// The names of variants are part of the key: rename one, and old and new processes lock different
/// keys. `#[key_segment(crate = path)]` names this crate where it is re-exported.
pub use redis_lock_macros::KeySegment;

#[doc = include_str!("attribute.md")]
pub use redis_lock_macros::redis_lock;
