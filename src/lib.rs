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
//! - [`redis_lock`]: the attribute, its options, what it expands to.
//! - [`Locks`]: the manager; [`Request`] and [`Guard`]: the same locks without the attribute.
//! - [`LockError`]: what can go wrong, told apart by what the caller does about it.
//! - [`KeySegment`]: what may stand in a key, and the derive for types of your own.

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
