//! Mutexes on servers where scripts can't be used: transactions under `WATCH`.
//!
//! What a script does in one step takes two round trips here, on a connection that serves one
//! command at a time:
//!
//! ```text
//!   WATCH keys, read them, MULTI  -->  the model decides  -->  what it changed, EXEC
//!                 ^                                                      |
//!                 +---------------- somebody changed a key --------------+
//! ```
//!
//! Keys and values are those of the scripts, so clients with and without scripts share a lock. The
//! decisions are those of the model, which is also the store in memory; this module reads the state
//! from the server and writes the changes back. Commands for one key run one after the other,
//! because connections have no common order.

mod exec;
mod look;
mod plan;
mod pool;
mod run;
#[cfg(test)]
mod run_tests;
mod self_test;
mod sequence;
mod snapshot;
mod steps;
mod wire;
#[cfg(test)]
mod wire_tests;
mod writes;

pub(super) use pool::Pool;
#[cfg(test)]
pub(super) use run::{Setting, run};
pub(super) use self_test::self_test;
#[cfg(test)]
pub(crate) use sequence::Sequence;
#[cfg(any(test, fuzzing))]
pub(crate) use steps::{NextStep, TransactionSteps};
pub(super) use wire::wire;
