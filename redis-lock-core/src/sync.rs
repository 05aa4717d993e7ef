//! What threads wait for each other with, in the primitives that `tests/threads` tries.
//!
//! There these names stand for the types of a scheduler, which tries many orders of the threads' steps.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use std::thread;

pub(crate) use futures_util::task::AtomicWaker;
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::yield_now;
