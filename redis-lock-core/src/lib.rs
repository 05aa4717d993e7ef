//! The runtime of `redis-locks`: leases, guards, waiting, and the stores they stand on.
//!
//! Depend on `redis-locks`, which re-exports all of this together with the attribute.

/// Whether a fault is planted here for the simulation to find; never so outside of its tests.
macro_rules! planted {
    ($fault:ident) => {{
        #[cfg(test)]
        let is_planted = crate::simulation::planted::is(crate::simulation::planted::Fault::$fault);
        #[cfg(not(test))]
        let is_planted = false;
        is_planted
    }};
}

// First, so that its page begins with how to get one.
mod locks;
pub use locks::Locks;

mod acquire;
mod blocking;
mod clock;
mod demand;
mod engine;
mod env;
mod glob;
mod global;
mod hold;
mod inspect;
mod lease;
mod lock;
mod log;
mod names;
mod nesting;
mod observe;
mod scope;
#[cfg(test)]
mod simulation;
mod store;
mod thread_tasks;
#[cfg(feature = "rustls")]
mod tls;
mod together;

mod attribute;
pub use attribute::{Fallible, FromLockError, KeySegment, SegmentWriter};

mod builder;
pub use builder::Builder;

mod config_error;
pub use config_error::ConfigError;

mod error;
pub use error::{BackendError, LockError};

mod guard;
pub use guard::Guard;

mod key;
pub use key::LockKey;

mod list;
pub use list::{BlockingListing, Listing};

mod request;
pub use request::Request;

mod state;
pub use state::{LockState, LossReason};

mod status;
pub use status::{Holder, LockKind, ReleaseBy, ServerInfo, Status, Waiting};

mod token;
pub use token::Token;

mod wait;
pub use wait::Wait;

/// What the expansion of `#[redis_lock]` calls. Not for people: it changes without notice,
/// and its name with it, which also keeps it apart from other crates' modules of this sort.
#[doc(hidden)]
pub mod __private_0_1 {
    pub use crate::attribute::*;
    pub use std::boxed::Box;
}
