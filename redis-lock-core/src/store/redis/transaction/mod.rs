//! Mutexes on servers where scripts can't be used: transactions under `WATCH`.
//!
//! What a script does in one step takes two flights here, on a connection that serves one command at
//! a time:
//!
//! ```text
//!   WATCH keys, read them, MULTI  -->  the model decides  -->  what it changed, EXEC
//!                 ^                                                      |
//!                 +---------------- somebody changed a key --------------+
//! ```
//!
//! Keys and bytes are those of the scripts, so clients of both sorts share a lock. What is decided is
//! decided by the model that also serves in memory; here it is only read from the server and written
//! back. Commands of one key follow each other, since connections have no common order.

mod batch;
mod line_up;
mod look;
mod plan;
mod pool;
mod run;
mod self_test;
mod sequence;
mod serve;
mod snapshot;
mod wire;
mod writes;

pub(super) use pool::Pool;
#[cfg(test)]
pub(super) use run::{Setting, run};
pub(super) use self_test::self_test;
#[cfg(test)]
pub(crate) use sequence::Sequence;
pub(super) use wire::wire;
