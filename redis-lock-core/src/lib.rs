//! The runtime of `redis-locks`: leases, guards, waiting, and the stores they stand on.
//!
//! Depend on `redis-locks`, which re-exports all of this together with the attribute.

mod acquire;
mod blocking;
mod clock;
mod demand;
mod engine;
mod hold;
mod lease;
mod log;
mod names;
mod scope;
mod slot;
mod store;
mod table;

mod builder;
pub use builder::Builder;

mod error;
pub use error::{BackendError, LockError};

mod guard;
pub use guard::Guard;

mod key;
pub use key::LockKey;

mod locks;
pub use locks::Locks;

mod request;
pub use request::Request;

mod state;
pub use state::{LockState, LossReason};

mod status;
pub use status::Holder;

mod token;
pub use token::Token;

mod wait;
pub use wait::Wait;
