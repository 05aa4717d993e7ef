//! The runtime of `redis-locks`: leases, guards, waiting, and the stores below them.
//!
//! Depend on `redis-locks`, which re-exports all of this together with the attribute.

#![cfg_attr(docsrs, feature(doc_cfg))]

/// Whether a fault is planted here for the simulation to find; never so outside of its tests.
macro_rules! planted {
    ($fault:ident) => {{
        #[cfg(test)]
        let is_planted = crate::domain::planted::is(crate::domain::planted::PlantedFault::$fault);
        #[cfg(not(test))]
        let is_planted = false;
        is_planted
    }};
}

mod api;
pub use api::attribute::{Fallible, FromLockError, KeySegment, SegmentWriter};
pub use api::builder::LocksBuilder;
#[doc(hidden)]
pub use api::fulfil::{LeadBody, RunBody};
pub use api::guard::Guard;
pub use api::list::{BlockingListing, Listing};
pub use api::locks::Locks;
#[cfg(feature = "serde")]
pub use api::reply::{Origin, Reply};
pub use api::request::LockRequest;

mod domain;
pub use domain::config_error::ConfigError;
pub use domain::credentials::Credentials;
pub use domain::demand::Wait;
pub use domain::error::LockError;
pub use domain::fault::{BackendError, BackendErrorKind};
pub use domain::key::LockKey;
pub use domain::label::SecondCall;
pub use domain::status::{
    Done, Holder, Idle, LockKind, LockStatus, NodeInfo, NodeRole, ReleaseBy, Scripting, ServerInfo,
    Topology, Waiter,
};
pub use domain::status::{Drained, LockState, LossReason};
pub use domain::token::Token;
pub use domain::too_few::{NoQuorum, NodeVote, NotReplicated, Vote};
pub use domain::value::{NoValue, StoredValue};

/// The driver, in the version that [`LocksBuilder::client`] takes. A new major version of it is a new major
/// version of this crate.
pub use redis;

mod engine;
#[cfg(fuzzing)]
#[doc(hidden)]
#[path = "../../fuzz/core/entry_points.rs"]
pub mod fuzzing;
mod lock;
mod observe;
pub use observe::LockRecord;
#[cfg(test)]
mod simulation;
mod store;
mod sync;

/// What the expansion of `#[redis_lock]` calls. Not for people: it changes without notice,
/// and its name with it, which also keeps it apart from other crates' modules of this sort.
#[doc(hidden)]
pub mod __private_0_1 {
    pub use crate::api::attribute::*;
    pub use std::boxed::Box;
}
