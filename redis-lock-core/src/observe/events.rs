//! Spans and events of `tracing`. Without the feature these functions do nothing.

use std::time::Duration;

use super::HoldFacts;
#[cfg(feature = "tracing")]
use super::caught;
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::domain::kind::Title;
use crate::{LockError, LossReason};

/// Emits an event of a lock, with what it is called.
macro_rules! say_of {
    ($level:ident, $demand:expr, [$($value:ident),*], $($what:tt)+) => {{
        let (key, lock, kind) = ($demand.key(), $demand.title.shown(), $demand.kind.name());
        say!($level, [key, lock, kind $(, $value)*], key, lock, kind, $($what)+);
    }};
}

/// Whether a subscriber may listen to events below the level of warnings. It is not asked: it may
/// block or panic, and the reader may have answers for others in hand.
#[inline]
pub(super) fn may_be_heard() -> bool {
    #[cfg(feature = "tracing")]
    return tracing::level_filters::LevelFilter::current() >= tracing::Level::DEBUG;
    #[cfg(not(feature = "tracing"))]
    false
}

/// Whether a subscriber listens to such events. To be called where it may block.
#[inline]
pub(super) fn are_heard() -> bool {
    #[cfg(feature = "tracing")]
    return may_be_heard()
        && caught(|| tracing::enabled!(target: "redis_locks", tracing::Level::DEBUG))
            == Some(true);
    #[cfg(not(feature = "tracing"))]
    false
}

/// A span of `tracing`; nothing without the feature.
#[derive(Debug, Default)]
pub(super) struct Span {
    #[cfg(feature = "tracing")]
    span: Option<tracing::Span>,
}

impl Span {
    pub(super) fn within(&self, say: impl FnOnce()) {
        #[cfg(feature = "tracing")]
        match &self.span {
            Some(span) => drop(caught(|| span.in_scope(say))),
            None => say(),
        }
        #[cfg(not(feature = "tracing"))]
        say();
    }
}

/// Closing it is the subscriber's code.
#[cfg(feature = "tracing")]
impl Drop for Span {
    fn drop(&mut self) {
        let span = self.span.take();
        caught(|| drop(span));
    }
}

/// The span of an acquisition.
pub(super) fn acquire(demand: &Demand) -> Span {
    #[cfg(feature = "tracing")]
    return Span {
        span: caught(|| {
            tracing::debug_span!(
                target: "redis_locks",
                "acquire",
                key = demand.key(),
                lock = demand.title.shown(),
                kind = demand.kind.name(),
            )
        }),
    };
    #[cfg(not(feature = "tracing"))]
    {
        let _ = demand;
        Span {}
    }
}

/// The span of a hold: open from the grant to the release or the loss, whichever thread sees it.
#[derive(Debug, Default)]
pub(super) struct HoldSpan {
    #[cfg(feature = "tracing")]
    span: crate::sync::NonPoisonMutex<Option<Box<Span>>>,
}

impl HoldSpan {
    pub(super) fn open(&self, hold: &HoldFacts<'_>) {
        #[cfg(feature = "tracing")]
        {
            let span = caught(|| {
                tracing::debug_span!(
                            target: "redis_locks",
                            "hold",
                            key = hold.demand.key(),
                            lock = hold.demand.title.shown(),
                            kind = hold.demand.kind.name(),
                            token = %hold.token,
                            fence = hold.fence,
                slot = hold.slot,
                        )
            });
            *self.span.lock() = Some(Box::new(Span { span }));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (hold.token, hold.fence, hold.slot);
    }

    /// Reports the end in the span, and closes it.
    pub(super) fn close(&self, say: impl FnOnce()) {
        #[cfg(feature = "tracing")]
        {
            let span = self.span.lock().take();
            match span.as_deref() {
                Some(span) => span.within(say),
                None => Span::default().within(say),
            }
        }
        #[cfg(not(feature = "tracing"))]
        say();
    }
}

pub(super) fn contended(demand: &Demand, holder: Option<&str>, here: bool) {
    say_of!(
        debug,
        demand,
        [holder, here],
        holder,
        here,
        "the lock is busy; waiting where the caller waits"
    );
}

pub(super) fn acquired(hold: &HoldFacts<'_>, waited: Duration) {
    say_of!(
        debug,
        hold.demand,
        [waited],
        token = %hold.token,
        fence = hold.fence,
        slot = hold.slot,
        waited_ms = millis(waited),
        "acquired"
    );
}

pub(super) fn failed(demand: &Demand, error: &LockError, waited: Duration) {
    let waited = millis(waited);
    if let LockError::Busy { holder, .. } = error {
        let holder = holder.as_ref().and_then(|holder| holder.label.as_deref());
        say_of!(debug, demand, [holder, waited], holder, waited_ms = waited, "busy");
    } else {
        say_of!(debug, demand, [error, waited], %error, waited_ms = waited, "not acquired");
    }
}

pub(super) fn abandoned(demand: &Demand, waited: Duration) {
    say_of!(debug, demand, [waited], waited_ms = millis(waited), "the caller stopped waiting");
}

pub(super) fn released(hold: &HoldFacts<'_>, held: Duration) {
    say_of!(
        debug,
        hold.demand,
        [held],
        token = %hold.token,
        held_ms = millis(held),
        "released"
    );
}

pub(super) fn lost(hold: &HoldFacts<'_>, reason: &LossReason, held: Duration) {
    say_of!(
        warn,
        hold.demand,
        [reason, held],
        token = %hold.token,
        reason = reason.code(),
        why = %reason,
        held_ms = millis(held),
        "lost"
    );
}

pub(super) fn superseded(hold: &HoldFacts<'_>) {
    say_of!(debug, hold.demand, [], token = %hold.token, "superseded: a newer call waits for its end");
}

pub(super) fn found_lost(hold: &HoldFacts<'_>, reason: &LossReason) {
    say_of!(
        warn,
        hold.demand,
        [reason],
        token = %hold.token,
        reason = reason.code(),
        why = %reason,
        "the release found the lock lost"
    );
}

pub(super) fn missed(key: &str, title: &Title, fault: &Fault, is_first: bool) {
    let (lock, why) = (title.shown(), fault.what.as_str());
    #[cfg_attr(
        not(feature = "tracing"),
        expect(clippy::if_same_then_else, reason = "nothing is said without the feature")
    )]
    if is_first {
        say!(warn, [key, lock, why], key, lock, why, "a renewal was missed; the lease still runs");
    } else {
        say!(debug, [key, lock, why], key, lock, why, "a renewal was missed; the lease still runs");
    }
}

pub(super) fn fault(key: &str, title: &Title, fault: &Fault) {
    let (lock, why) = (title.shown(), fault.what.as_str());
    say!(debug, [key, lock, why], key, lock, why, "a command failed");
}

pub(super) fn forced(key: &str, reason: &str) {
    say!(warn, [key, reason], key, reason, "released by force");
}

/// In whole microseconds, which are decimals of milliseconds.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
