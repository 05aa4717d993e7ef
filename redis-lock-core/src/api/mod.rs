//! The public API: locks, requests, guards, and the functions that the attribute calls.

// First, so that the page of `Locks` begins with how to get one.

pub(crate) mod locks;
mod opening;

pub(crate) mod acquire;
pub(crate) mod attribute;
pub(crate) mod blocking;
pub(crate) mod builder;
pub(crate) mod fulfil;
pub(crate) mod guard;
mod guard_end;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod nesting;
mod note;
mod parker;
#[cfg(feature = "serde")]
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod scope;
mod server;
pub(crate) mod server_url;
