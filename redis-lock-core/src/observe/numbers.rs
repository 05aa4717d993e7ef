//! Counters, histograms and gauges. Their names are public: `docs/OBSERVABILITY.md`.
//!
//! No label but `slot` has more values than the program has functions and names; which key is contended is
//! reported by events.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, Recorder, Unit};

use super::caught;
use crate::domain::fault::BackendErrorKind;
use crate::domain::kind::LockSort;
use crate::domain::status::{AskOutcome, IdleEnd};
use crate::{LockError, LossReason};

const ACQUIRED: &str = "redis_locks_acquired_total";
const FAILED: &str = "redis_locks_failed_total";
const CONTENDED: &str = "redis_locks_contended_total";
const RELEASED: &str = "redis_locks_released_total";
const LOST: &str = "redis_locks_lost_total";
const FORCED: &str = "redis_locks_forced_total";
const NOT_COMPLETED: &str = "redis_locks_not_completed_total";
const NOT_STORED: &str = "redis_locks_values_not_stored_total";
const RENEWALS: &str = "redis_locks_renewals_total";
const BACKEND_ERRORS: &str = "redis_locks_backend_errors_total";
const WAIT: &str = "redis_locks_wait_seconds";
const HOLD: &str = "redis_locks_hold_seconds";
const WAITING: &str = "redis_locks_waiting";
const HELD: &str = "redis_locks_held";
const IDLE: &str = "redis_locks_idle";
const TAKEN_AGAIN: &str = "redis_locks_taken_again_total";
const IDLE_ENDED: &str = "redis_locks_idle_ended_total";
const ASKED: &str = "redis_locks_asked_total";

static METADATA: Metadata<'static> = Metadata::new("redis_locks", Level::INFO, Some("redis_locks"));

/// Describes the metrics to the recorder. A recorder that is installed later gets no descriptions.
pub(super) fn describe() {
    let counters = [
        (ACQUIRED, "locks acquired"),
        (FAILED, "acquisitions that ended without the lock"),
        (CONTENDED, "acquisitions that had to wait"),
        (RELEASED, "holds that were released"),
        (LOST, "holds that ended before their guard did"),
        (FORCED, "holds that this process ended by force"),
        (NOT_COMPLETED, "successes of `once` whose mark is not confirmed"),
        (NOT_STORED, "values that other calls can't get"),
        (RENEWALS, "renewals of leases"),
        (TAKEN_AGAIN, "locks acquired without a command, because their lease lingered"),
        (IDLE_ENDED, "lingering leases that ended without being used again"),
        (ASKED, "requests to holders elsewhere for an idle lease"),
        (BACKEND_ERRORS, "commands that failed"),
    ];
    with_recorder(|recorder| {
        for (name, what) in counters {
            recorder.describe_counter(name.into(), Some(Unit::Count), what.into());
        }
        let histograms =
            [(WAIT, "from the call to its end"), (HOLD, "from the lock to its release or loss")];
        for (name, what) in histograms {
            recorder.describe_histogram(name.into(), Some(Unit::Seconds), what.into());
        }
        let gauges = [
            (WAITING, "acquisitions in progress"),
            (HELD, "locks held"),
            (IDLE, "leases that linger"),
        ];
        for (name, what) in gauges {
            recorder.describe_gauge(name.into(), Some(Unit::Count), what.into());
        }
    });
}

/// How many lists the series are spread over.
const LISTS: usize = 256;

/// Every series that was ever asked for: one for each name that the program has.
static SERIES: [OnceLock<Box<Series>>; LISTS] = [const { OnceLock::new() }; LISTS];

/// The numbers of one sort of lock. What each acquisition counts has its labels put together once, so
/// that to count allocates nothing.
#[derive(Debug)]
pub(super) struct Series {
    sort: LockSort,
    acquired: Key,
    contended: Key,
    released: Key,
    wait: Key,
    hold: Key,
    waiting: Key,
    held: Key,
    /// The next series of its list.
    next: OnceLock<Box<Self>>,
}

impl Series {
    /// The series of a sort of lock, made at the first call.
    pub(super) fn of(sort: LockSort) -> &'static Self {
        let (kind, title) = sort;
        let place = title.lock.as_ptr().addr() ^ title.function.as_ptr().addr().rotate_left(5);
        let mut slot = &SERIES[place % LISTS];
        loop {
            let series = slot.get_or_init(|| Box::new(Self::new(sort)));
            if series.sort.1 == title && series.sort.0.name() == kind.name() {
                return series;
            }
            slot = &series.next;
        }
    }

    fn new(sort: LockSort) -> Self {
        // A recorder may copy a key for each count, which allocates unless the labels are static.
        let labels: &'static [Label] = labels(sort, &[("outcome", "acquired")]).leak();
        let own = labels.split_last().map_or(labels, |(_, own)| own);
        let plain = |name| Key::from_static_parts(name, own);
        Self {
            sort,
            acquired: plain(ACQUIRED),
            contended: plain(CONTENDED),
            released: plain(RELEASED),
            wait: Key::from_static_parts(WAIT, labels),
            hold: plain(HOLD),
            waiting: plain(WAITING),
            held: plain(HELD),
            next: OnceLock::new(),
        }
    }

    pub(super) fn waiting(&self, change: f64) {
        gauge(&self.waiting, change);
    }

    /// A slot is one of few hundred at most.
    pub(super) fn held(&self, slot: Option<u32>, change: f64) {
        match slot.map(|slot| vec![Label::new("slot", slot.to_string())]) {
            Some(slot) => gauge(&self.held.with_extra_labels(slot), change),
            None => gauge(&self.held, change),
        }
    }

    pub(super) fn contended(&self) {
        count(&self.contended);
    }

    pub(super) fn acquired(&self, waited: Duration) {
        count(&self.acquired);
        record(&self.wait, waited);
    }

    pub(super) fn failed(&self, error: &LockError, waited: Duration) {
        let (outcome, reason) = match error {
            LockError::Busy { .. } => ("busy", ""),
            LockError::Crowded { .. } => ("crowded", ""),
            LockError::Superseded { .. } => ("superseded", ""),
            LockError::Done { .. } => ("done", ""),
            LockError::Mismatch { .. } => ("mismatch", ""),
            LockError::Backend { source } => ("backend", source.kind().code()),
            LockError::Shutdown => ("shutdown", ""),
            LockError::Lost { reason, .. } => ("lost", reason.code()),
            LockError::Reentrant { .. } => ("reentrant", ""),
            LockError::InvalidConfig { .. } | LockError::WrongHold { .. } => ("invalid", ""),
            _ => ("other", ""),
        };
        self.ended_without(outcome, reason, waited);
    }

    pub(super) fn shared(&self, waited: Duration) {
        self.ended_without("shared", "", waited);
    }

    pub(super) fn cancelled(&self, waited: Duration) {
        self.ended_without("cancelled", "", waited);
    }

    fn ended_without(&self, outcome: &'static str, reason: &'static str, waited: Duration) {
        self.count(FAILED, &[("outcome", outcome), ("reason", reason)]);
        record(&key(WAIT, self.sort, &[("outcome", outcome)]), waited);
    }

    pub(super) fn ended(&self, held: Duration, loss: Option<&LossReason>) {
        match loss {
            None => count(&self.released),
            Some(reason) => self.lost(reason),
        }
        record(&self.hold, held);
    }

    pub(super) fn lost(&self, reason: &LossReason) {
        self.count(LOST, &[("reason", reason.code())]);
    }

    pub(super) fn superseded(&self) {
        self.count(FAILED, &[("outcome", "superseded")]);
    }

    pub(super) fn renewed(&self, done: bool) {
        self.count(RENEWALS, &[("outcome", if done { "answered" } else { "missed" })]);
    }

    pub(super) fn fault(&self, kind: BackendErrorKind) {
        self.count(BACKEND_ERRORS, &[("reason", kind.code())]);
    }

    pub(super) fn not_completed(&self) {
        self.count(NOT_COMPLETED, &[]);
    }

    #[cfg(feature = "serde")]
    pub(super) fn not_stored(&self, why: crate::NoValue) {
        let reason = match why {
            crate::NoValue::TooLarge { .. } => "too_large",
            _ => "not_serialized",
        };
        self.count(NOT_STORED, &[("reason", reason)]);
    }

    pub(super) fn idle(&self, change: f64) {
        gauge(&key(IDLE, self.sort, &[]), change);
    }

    pub(super) fn taken_again(&self) {
        self.count(TAKEN_AGAIN, &[]);
    }

    pub(super) fn idle_ended(&self, end: IdleEnd) {
        let reason = match end {
            IdleEnd::Over => "over",
            IdleEnd::Asked => "asked",
            IdleEnd::Terms => "terms",
            IdleEnd::Limit => "limit",
            IdleEnd::Trouble => "trouble",
            IdleEnd::Shutdown => "shutdown",
        };
        self.count(IDLE_ENDED, &[("reason", reason)]);
    }

    pub(super) fn asked(&self, outcome: AskOutcome) {
        let outcome = match outcome {
            AskOutcome::HandedOver => "handed_over",
            AskOutcome::InUse => "in_use",
            AskOutcome::Silent => "silent",
        };
        self.count(ASKED, &[("outcome", outcome)]);
    }

    fn count(&self, name: &'static str, more: &[(&'static str, &'static str)]) {
        count(&key(name, self.sort, more));
    }
}

pub(super) fn forced() {
    count(&Key::from_static_name(FORCED));
}

/// The key of a metric.
fn key(name: &'static str, sort: LockSort, more: &[(&'static str, &'static str)]) -> Key {
    Key::from_parts(name, labels(sort, more))
}

/// The labels of a metric. Those of `more` without a value are left out.
fn labels((kind, title): LockSort, more: &[(&'static str, &'static str)]) -> Vec<Label> {
    let own = [("kind", kind.name()), ("lock", title.lock), ("function", title.function)];
    let named = own.iter().chain(more.iter().filter(|(_, value)| !value.is_empty()));
    named.map(|(name, value)| Label::from_static_parts(name, value)).collect()
}

/// Calls the recorder, which may panic.
fn with_recorder(call: impl FnOnce(&dyn Recorder)) {
    caught(|| metrics::with_recorder(call));
}

fn count(key: &Key) {
    with_recorder(|recorder| recorder.register_counter(key, &METADATA).increment(1));
}

fn gauge(key: &Key, change: f64) {
    with_recorder(|recorder| recorder.register_gauge(key, &METADATA).increment(change));
}

fn record(key: &Key, duration: Duration) {
    with_recorder(|recorder| {
        recorder.register_histogram(key, &METADATA).record(duration.as_secs_f64());
    });
}
