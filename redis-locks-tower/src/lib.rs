//! Layers for [`tower`](https://docs.rs/tower) services, such as those of axum, tonic and hyper. They handle requests
//! under locks of [`redis-locks`](redis_locks).
//!
//! | A request should | use |
//! |---|---|
//! | run one at a time for each order, user or document | [`LockLayer`] |
//! | run once for each `Idempotency-Key`, however often a client repeats it | [`IdempotencyLayer`] |
//!
//! # axum
//!
//! ```
//! use axum::Router;
//! use axum::routing::post;
//! use redis_locks::{LockError, LockRequest, Locks};
//! use redis_locks_tower::LockLayer;
//!
//! fn app(locks: Locks) -> Router {
//!     let by_order = locks.clone();
//!     let one_at_a_time = LockLayer::new(locks, move |parts: &http::request::Parts| {
//!         // `/orders/7/charge`: one at a time for each order, whichever instance has the request.
//!         Ok(parts.uri.path().split('/').nth(2).map(|id| by_order.mutex(format!("order:{id}")).no_wait()))
//!     });
//!     Router::new().route("/orders/{id}/charge", post(|| async { "charged" })).layer(one_at_a_time)
//! }
//! # let _ = app(Locks::in_memory());
//! ```
//!
//! # tonic
//!
//! ```
//! use redis_locks::Locks;
//! use redis_locks_tower::LockLayer;
//! use tonic::service::Routes;
//! use tonic::transport::Server;
//!
//! # async fn serve(routes: Routes) -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::from_env()?;
//! let by_method = locks.clone();
//! Server::builder()
//!     .layer(LockLayer::new(locks, move |parts: &http::request::Parts| {
//!         Ok(Some(by_method.mutex(parts.uri.path()).no_wait()))
//!     }))
//!     .add_routes(routes)
//!     .serve("127.0.0.1:50051".parse()?)
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! To lock by a field of the message, call an annotated function from the method, and turn its error into a status:
//!
//! ```
//! use redis_locks::LockError;
//! use tonic::{Code, Status};
//!
//! fn status(error: &LockError) -> Status {
//!     eprintln!("{error}"); // names keys, hosts and processes: it is for the log, not for clients
//!     Status::new(Code::from_i32(error.grpc_code()), "try again later")
//! }
//! # assert_eq!(status(&LockError::Shutdown).code(), Code::Unavailable);
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod body;
mod idempotency;
mod lock;
mod log;
mod task;

pub use body::{Body, BoxError};
pub use idempotency::OnOutage::{self, Pass, Refuse};
pub use idempotency::{IdempotencyLayer, IdempotencyService, Scope, Scoped, Unscoped};
pub use lock::{LockLayer, LockService};
