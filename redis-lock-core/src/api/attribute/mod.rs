//! What annotated functions need at run time: keys from values, errors into return types, and the
//! scope that a body runs in.

mod enter;
mod output;
mod render;
mod run;
mod segment;
mod values;

pub use enter::{Scope, with_permits};
pub use output::{
    AnyOutput, Fallible, FromLockError, FutureOutput, HoldsFuture, Output, ResultOutput, SeenInto,
    never_own_error, output_of,
};
pub use render::{collected, key, keys, render};
pub use run::{
    Ending, Kept, Run, RunOr, blocking_run, blocking_run_or, blocking_run_or_with, call, ending,
    fence, handled, kept, left, never, own_failure, refused, run, run_or, run_or_with, slot,
};
pub use segment::{KeySegment, PlainStyle, Segment, SegmentWriter, segment};
pub use values::Codec;
#[cfg(not(feature = "serde"))]
pub use values::FeatureSerde;

use std::time::Duration;

use crate::domain::kind::{Kind, Title};
use crate::domain::label::of_path;
use crate::{LockError, LockRequest};

/// An option of an annotated function that is known when it is compiled, under the name of what it
/// becomes on a [`LockRequest`].
///
/// A list of these is a constant by its mere form. Whatever would have to be computed for it, rustc
/// would compute for each function anew whenever it checks the program; so a time is its whole
/// seconds and its nanoseconds.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(non_camel_case_types, reason = "an editor leads from the user's option to its page here")]
pub enum Fixed {
    /// See `Locks::read`.
    read,
    /// See `Locks::write`.
    write,
    /// See `Locks::permit`.
    permits(u32),
    /// See `LockRequest::ttl`.
    ttl(u64, u32),
    /// See `LockRequest::never_expires`.
    never_expires,
    /// See `LockRequest::wait`.
    wait(u64, u32),
    /// See `LockRequest::wait_forever`.
    wait_forever,
    /// See `LockRequest::no_wait`.
    no_wait,
    /// See `LockRequest::renew`.
    renew(bool),
    /// See `LockRequest::fair`.
    fair(bool),
    /// See `LockRequest::max_waiters`.
    max_waiters(usize),
    /// See `LockRequest::queue`.
    queue(usize),
    /// See `LockRequest::newest`.
    newest,
    /// See `LockRequest::max_hold`.
    max_hold(u64, u32),
    /// See `LockRequest::min_hold`.
    min_hold(u64, u32),
    /// See `LockRequest::once`.
    once(u64, u32),
    /// See `LockRequest::replay`.
    replay,
    /// See `LockRequest::share`.
    share,
    /// See `LockRequest::repair_orphan`.
    repair_orphan(u64, u32),
    /// See `LockRequest::linger`.
    linger(u64, u32),
    /// See `LockRequest::outage`.
    outage(u64, u32),
    /// See `LockRequest::label`; the function's path otherwise.
    label(&'static str),
    /// See `LockRequest::margin`.
    margin(u64, u32),
    /// See `LockRequest::fenced`.
    fenced,
    /// See `LockRequest::slotted`.
    slotted,
    /// See `LockRequest::reentrant`.
    reentrant,
    /// Lets the body run to its end when the lock is lost, and keeps its value.
    finish,
    /// Does not wait until the server confirms the release.
    background,
    /// Leaves it to the body what to return when the lock is busy.
    answer_busy,
    /// Leaves it to the body what to return when it was done already.
    answer_done,
}

/// What is known of an annotated function.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// What its holders are called.
    pub(super) label: &'static str,
    /// The template of its keys.
    lock: &'static str,
    known: &'static [Fixed],
}

impl Plan {
    pub(super) fn new(label: &'static str, lock: &'static str, known: &'static [Fixed]) -> Self {
        Self { label, lock, known }
    }

    pub(super) fn kind(&self) -> Kind {
        let kind = self.known.iter().find_map(|it| match *it {
            Fixed::read => Some(Kind::Read),
            Fixed::write => Some(Kind::Write),
            Fixed::permits(limit) => Some(Kind::Permit { limit }),
            _ => None,
        });
        kind.unwrap_or(Kind::Mutex)
    }

    /// Whether the body runs to its end although the lock is lost.
    pub(super) fn finishes(&self) -> bool {
        self.has(|it| matches!(it, Fixed::finish))
    }

    /// Whether the release is not waited for.
    pub(super) fn in_background(&self) -> bool {
        self.has(|it| matches!(it, Fixed::background))
    }

    /// Whether the body has a return value for this.
    pub(super) fn answers(&self, error: &LockError) -> bool {
        error.is_busy() && self.answers_busy()
            || matches!(error, LockError::Done { .. })
                && self.has(|it| matches!(it, Fixed::answer_done))
    }

    /// Whether the body has a return value for a busy lock.
    pub(super) fn answers_busy(&self) -> bool {
        self.has(|it| matches!(it, Fixed::answer_busy))
    }

    fn has(&self, option: fn(&Fixed) -> bool) -> bool {
        self.known.iter().any(option)
    }

    pub(super) fn apply(&self, mut request: LockRequest) -> LockRequest {
        request.options.label = Some(of_path(self.label));
        request.options.title = Title { lock: self.lock, function: self.label };
        self.known.iter().fold(request, |request, known| known.apply(request))
    }
}

impl Fixed {
    fn apply(self, request: LockRequest) -> LockRequest {
        match self {
            Self::ttl(seconds, nanoseconds) => request.ttl(Duration::new(seconds, nanoseconds)),
            Self::never_expires => request.never_expires(),
            Self::wait(seconds, nanoseconds) => request.wait(Duration::new(seconds, nanoseconds)),
            Self::wait_forever => request.wait_forever(),
            Self::no_wait => request.no_wait(),
            Self::renew(renew) => request.renew(renew),
            Self::fair(fair) => request.fair(fair),
            Self::max_waiters(most) => request.max_waiters(most),
            Self::queue(most) => request.queue(most),
            Self::newest => request.newest(),
            Self::max_hold(seconds, nanoseconds) => {
                request.max_hold(Duration::new(seconds, nanoseconds))
            }
            Self::min_hold(seconds, nanoseconds) => {
                request.min_hold(Duration::new(seconds, nanoseconds))
            }
            Self::once(seconds, nanoseconds) => request.once(Duration::new(seconds, nanoseconds)),
            Self::replay => {
                let mut request = request;
                request.options.replay = true;
                request
            }
            Self::share => {
                let mut request = request;
                request.options.share = true;
                request
            }
            Self::repair_orphan(seconds, nanoseconds) => {
                request.repair_orphan(Duration::new(seconds, nanoseconds))
            }
            Self::linger(seconds, nanoseconds) => {
                request.linger(Duration::new(seconds, nanoseconds))
            }
            Self::outage(seconds, nanoseconds) => {
                request.outage(Duration::new(seconds, nanoseconds))
            }
            Self::label(label) => request.label(label),
            Self::margin(seconds, nanoseconds) => {
                request.margin(Duration::new(seconds, nanoseconds))
            }
            Self::fenced => request.fenced(),
            Self::slotted => request.slotted(),
            Self::reentrant => request.reentrant(),
            // The kind was chosen when the request was made; the other options are not part of a
            // request.
            Self::read | Self::write | Self::permits(_) => request,
            Self::finish | Self::background | Self::answer_busy | Self::answer_done => request,
        }
    }
}
