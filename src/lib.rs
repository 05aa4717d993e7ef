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
//! - [`KeySegment`]: what may stand in a key.

pub use redis_lock_core::*;

#[doc(hidden)]
pub use redis_lock_core::__private;

#[doc = include_str!("attribute.md")]
pub use redis_lock_macros::redis_lock;
