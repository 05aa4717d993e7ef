//! One attribute makes a function run one at a time across all your machines. The lock lives in
//! Redis or Valkey.
//!
//! ```
//! use redis_locks::{LockError, Locks, redis_lock};
//!
//! #[redis_lock(key = "order:{order_id}", ttl = "30s")]
//! async fn charge(order_id: u64) -> Result<u64, LockError> {
//!     Ok(order_id) // one at a time for each order, on whichever machine it runs
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! Locks::in_memory().install()?; // `Locks::connect("redis://…").await?` in a cluster
//! assert_eq!(charge(7).await?, 7);
//! # Ok(()) }
//! ```
//!
//! **The promise.** The body never starts without the lock. If the body's own `Ok` comes back, the
//! lock was held from the first statement to the last. If the lock is lost on the way, the call
//! returns `LockError::Lost` instead. The server must keep its data, its clock must not jump, and
//! the client's clock must keep running. [All that is promised](guide::guarantees), and what is not.
//!
//! After a loss, an async body is dropped the next time it yields. A blocking body cannot be stopped
//! and runs to its end. The body's own `Err` is returned as it is. With `on_lost = finish`, only the
//! first sentence of the promise holds.
//!
//! # Where to read on
//!
//! | To | read |
//! |---|---|
//! | lock a function | [`redis_lock`]: the attribute, its options, what it expands to |
//! | lock anything else | [`Locks`]: how to get one; [`LockRequest`], [`Guard`] |
//! | react to a failure | [`LockError`]: one variant for each reaction: retry, give up, fix the configuration |
//! | use one of your types in a key | [`KeySegment`] |
//! | build a web service | [web services](guide::web): axum, 409 and 503, graceful shutdown |
//! | answer a repeated request with the first answer | [idempotency keys](guide::idempotency), the crate `redis-locks-tower` |
//! | schedule jobs, elect a leader | [jobs](guide::jobs): cron, systemd, [Kubernetes](guide::kubernetes), ShedLock's options, leader election |
//! | write to a database under a lock | [locks and transactions](guide::transactions), [fencing tokens](guide::guarantees#fencing) |
//! | choose a mutex, RwLock or semaphore, a ttl, a wait | [choosing](guide::choosing), [what a second call does](guide::second_call) |
//! | set up Redis | [the server](guide::server), [a quorum of servers](guide::quorum), [when Redis is down](guide::web#when-redis-is-down) |
//! | deploy a new version | [rolling deploys](guide::deploys) |
//! | lock from sync code on an async runtime | [blocking calls](guide::choosing#blocking-calls-on-an-async-runtime) |
//! | test code that locks | [testing](guide::testing) |
//! | see what is going on | [observability](guide::observability), the [runbook](guide::runbook), [`Locks::status`], [`Locks::list`] |
//! | know about connections, threads, fork, platforms | [questions and answers](guide::faq) |
//! | use the same locks from another language, or grant rights | [protocol](guide::protocol) |
//! | move from another library | [a Redlock library](guide::from_redlock), [Redisson](guide::from_redisson), [ShedLock](guide::from_shedlock), [cached](guide::from_cached) |
//!
//! # Features
//!
//! | Feature | Default | What |
//! |---|---|---|
//! | `tracing` | yes | spans and events of the `tracing` crate |
//! | `metrics` | no | counters, histograms and gauges of the `metrics` crate |
//! | `serde` | no | `replay` and `call`: other calls get the value of the call that ran |
//! | `rustls` | no | `rediss://` over rustls, with the platform's root certificates or your own authority |
//!
//! # Requirements
//!
//! Rust 1.88. A server: Redis 5.0 or later, or Valkey; or none, with
//! [`Locks::in_memory`]. Any async runtime, or none: the engine runs on a separate thread.
//!
//! # Examples
//!
//! They are in `examples/`, in the repository and in the package: `quickstart`, `unit_tests`, `fencing`,
//! `leadership`, `coalesce`, `newest`, `share`, `request_to_worker`, `read_write` and others. Run one by `cargo run
//! --example quickstart`. An axum service, a nightly job and a queue with fencing in SQL are in `examples/apps`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(doc, doctest))]
pub mod guide;

pub use redis_lock_core::*;

#[doc(hidden)]
pub use redis_lock_core::__private_0_1;

/// Lets your types be part of key templates: newtypes, structs of several parts (joined by `:`), and enums without
/// fields (by the names of their variants).
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
/// keys. `#[key_segment(crate = path)]` names the path of this crate if another crate re-exports
/// it.
pub use redis_lock_macros::KeySegment;

#[doc = include_str!("attribute.md")]
pub use redis_lock_macros::redis_lock;

/// Sets default options for all functions with [`redis_lock`](macro@redis_lock) in an `impl`, a trait or an inline
/// module.
///
/// ```
/// use redis_locks::{LockError, Locks, redis_lock, redis_lock_defaults};
///
/// struct Orders { locks: Locks }
///
/// #[redis_lock_defaults(via = self.locks, ttl = "10s", wait = "2s", prefix = "orders:")]
/// impl Orders {
///     #[redis_lock(key = "{id}")] // `orders:7`, with a ttl of 10 s
///     async fn charge(&self, id: u64) -> Result<(), LockError> {
///         Ok(())
///     }
///
///     #[redis_lock(key = "report", ttl = "1m")] // another ttl
///     async fn report(&self) -> Result<(), LockError> {
///         Ok(())
///     }
/// }
/// ```
///
/// `prefix` is put before each template. With `keys = expr` it does not compile, because those keys are not
/// templates. `key`, `keys`, `fence`, `guard` and `request` can't be set for a block. If blocks are nested, the inner
/// one wins. An option that no function in the block uses does not compile. A macro in the block is expanded later,
/// so functions that it makes get no defaults.
pub use redis_lock_macros::redis_lock_defaults;

#[doc(hidden)]
pub use redis_lock_macros::key as __key;

/// A key by the rules of the attribute's templates: `key!("user:{name}")` is what
/// `#[redis_lock(key = "user:{name}")]` locks.
///
/// It returns a `Result<LockKey, LockError>`: an empty value is [`LockError::InvalidKey`]. Arguments may follow the
/// template, as in `format!`.
///
/// ```
/// use redis_locks::{Locks, key};
///
/// # fn main() -> Result<(), redis_locks::LockError> {
/// # let locks = Locks::in_memory();
/// let name = "a:b";
/// let guard = locks.mutex(key!("user:{name}")?).blocking_acquire()?;
/// assert_eq!(guard.key(), "user:a%3Ab");
/// assert_eq!(key!("user:{}:{n}", name, n = 1 + 1)?.as_str(), "user:a%3Ab:2");
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! key {
    ($($template:tt)*) => {
        $crate::__key!($crate $($template)*)
    };
}
