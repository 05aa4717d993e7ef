//! The runtime of `redis-locks`: leases, guards, waiting, and the stores they stand on.
//!
//! Depend on `redis-locks`, which re-exports all of this together with the attribute.

mod clock;

mod error;
pub use error::{BackendError, LockError};

mod key;
pub use key::LockKey;

mod state;
pub use state::{LockState, LossReason};

mod status;
pub use status::Holder;

mod token;
pub use token::Token;

mod wait;
pub use wait::Wait;
