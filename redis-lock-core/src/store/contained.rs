//! Panics over what a server sent.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::BackendErrorKind;
use crate::domain::error::{Fault, FaultClass};

/// Reads, or decides about, what a server sent. That must not panic. Should it do so, it costs this one
/// answer, and not the engine with everything that the process holds.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let what = "redis-locks failed over an answer of the server: this is a bug, please report it with \
                    the message of the panic on standard error and the versions of this crate and of the \
                    server";
        crate::observe::log::bug(what);
        Fault::new(FaultClass::Permanent, what).of(BackendErrorKind::Protocol)
    })
}
