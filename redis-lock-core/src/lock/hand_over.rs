//! Asking a holder that may be idle to hand over to callers that do not wait.

use std::time::Duration;

/// How long a caller that does not wait stays in the queue after an idle holder was asked.
pub(super) const ASK: Duration = Duration::from_millis(200);

/// How long the holder has to answer, or three round trips if those take longer.
pub(super) const ASK_WAIT: Duration = Duration::from_millis(50);

/// Whether a holder that may be idle was asked to hand over to callers that do not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandOverRequest {
    Not,
    /// It was asked, and its answer is awaited until the time of the next look.
    Waits,
    /// It has answered, or its time is over: the next look decides.
    Over {
        answered: bool,
    },
    /// That look has found that the lock is in use.
    Refused,
}
