//! Panics over one answer or one lock.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::BackendErrorKind;
use crate::domain::error::{Fault, FaultClass};

/// What the log says of a panic of ours.
pub(crate) const BUG: &str = "redis-locks failed: this is a bug, please report it with the message of \
                              the panic on standard error and the versions of this crate and of the \
                              server";

/// Reads, or decides about, what a server sent, or steps the machine of a lock. That must not panic.
/// Should it do so, it costs this one answer or this one lock, and not the engine with everything that
/// the process holds.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        crate::observe::log::bug(BUG);
        Fault::new(FaultClass::Permanent, BUG).of(BackendErrorKind::Protocol)
    })
}
