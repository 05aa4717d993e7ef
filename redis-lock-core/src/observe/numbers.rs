//! Counters, histograms and gauges. Their names are public: `docs/OBSERVABILITY.md`.
//!
//! Keys are put together from constants, without the macros of `metrics`, which would allocate for
//! a label that is not a literal. No label has more than a handful of values; which key is
//! contended is reported by events.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, Unit, with_recorder};

use crate::domain::error::FaultClass;
use crate::domain::idle_event::{AskOutcome, IdleEnd};
use crate::domain::kind::Kind;
use crate::{LockError, LossReason};

const ACQUIRED: &str = "redis_locks_acquired_total";
const FAILED: &str = "redis_locks_failed_total";
const CONTENDED: &str = "redis_locks_contended_total";
const RELEASED: &str = "redis_locks_released_total";
const LOST: &str = "redis_locks_lost_total";
const FORCED: &str = "redis_locks_forced_total";
const NOT_COMPLETED: &str = "redis_locks_not_completed_total";
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

/// A label with one value, known at compile time.
macro_rules! label {
    ($name:literal, $value:literal) => {{
        static LABEL: [Label; 1] = [Label::from_static_parts($name, $value)];
        &LABEL
    }};
}

type Labels = &'static [Label];

/// Describes the metrics to the recorder. A recorder that is installed later gets no descriptions.
pub(crate) fn describe() {
    let counters = [
        (ACQUIRED, "locks acquired"),
        (FAILED, "acquisitions that ended without the lock"),
        (CONTENDED, "acquisitions that found somebody else in possession"),
        (RELEASED, "holds that were given back"),
        (LOST, "holds that ended before their guard did"),
        (FORCED, "holds that this process ended by force"),
        (NOT_COMPLETED, "successes that others may not know of"),
        (RENEWALS, "renewals of leases"),
        (TAKEN_AGAIN, "locks acquired without a command, because their lease lingered"),
        (IDLE_ENDED, "leases that do not linger any longer, and were not taken again"),
        (ASKED, "holders that may be idle, asked for their lease"),
        (BACKEND_ERRORS, "commands that the server failed, refused or did not answer"),
    ];
    with_recorder(|recorder| {
        for (name, what) in counters {
            recorder.describe_counter(name.into(), Some(Unit::Count), what.into());
        }
        for (name, what) in [(WAIT, "from the call to the lock"), (HOLD, "how long it was held")] {
            recorder.describe_histogram(name.into(), Some(Unit::Seconds), what.into());
        }
        let gauges =
            [(WAITING, "who wait now"), (HELD, "locks held now"), (IDLE, "leases that linger now")];
        for (name, what) in gauges {
            recorder.describe_gauge(name.into(), Some(Unit::Count), what.into());
        }
    });
}

pub(super) fn waiting(kind: Kind, change: f64) {
    gauge(WAITING, labels(kind), change);
}

pub(super) fn held(kind: Kind, change: f64) {
    gauge(HELD, labels(kind), change);
}

pub(super) fn contended(kind: Kind) {
    count(CONTENDED, labels(kind));
}

pub(super) fn acquired(kind: Kind, waited: Duration) {
    count(ACQUIRED, labels(kind));
    record(WAIT, labels(kind), waited);
}

pub(super) fn failed(_: Kind, error: &LockError) {
    let why = match error {
        LockError::Busy { .. } => label!("why", "busy"),
        LockError::Crowded { .. } => label!("why", "crowded"),
        LockError::Done { .. } => label!("why", "done"),
        LockError::Backend { .. } => label!("why", "backend"),
        LockError::Shutdown => label!("why", "shutdown"),
        _ => label!("why", "other"),
    };
    count(FAILED, why);
}

pub(super) fn abandoned(_: Kind) {
    count(FAILED, label!("why", "cancelled"));
}

pub(super) fn ended(kind: Kind, held: Duration, loss: Option<&LossReason>) {
    match loss {
        None => count(RELEASED, labels(kind)),
        Some(LossReason::Expired) => count(LOST, label!("reason", "expired")),
        Some(LossReason::Overwritten { .. }) => count(LOST, label!("reason", "overwritten")),
        Some(LossReason::Removed { because: Some(_) }) => count(LOST, label!("reason", "forced")),
        Some(LossReason::Removed { because: None }) => count(LOST, label!("reason", "removed")),
        Some(LossReason::Shutdown) => count(LOST, label!("reason", "shutdown")),
        Some(LossReason::HoldLimit) => count(LOST, label!("reason", "hold_limit")),
    }
    record(HOLD, labels(kind), held);
}

pub(super) fn renewed(done: bool) {
    let outcome = if done { label!("outcome", "answered") } else { label!("outcome", "missed") };
    count(RENEWALS, outcome);
}

pub(super) fn fault(class: FaultClass) {
    let class = match class {
        FaultClass::Refused | FaultClass::Moving => label!("class", "refused"),
        FaultClass::Permanent => label!("class", "permanent"),
        _ => label!("class", "unknown"),
    };
    count(BACKEND_ERRORS, class);
}

pub(super) fn not_completed() {
    count(NOT_COMPLETED, &[]);
}

pub(super) fn forced() {
    count(FORCED, &[]);
}

pub(super) fn idle(change: f64) {
    gauge(IDLE, &[], change);
}

pub(super) fn taken_again() {
    count(TAKEN_AGAIN, &[]);
}

pub(super) fn idle_ended(why: IdleEnd) {
    let why = match why {
        IdleEnd::Over => label!("why", "over"),
        IdleEnd::Asked => label!("why", "asked"),
        IdleEnd::Terms => label!("why", "terms"),
        IdleEnd::Limit => label!("why", "limit"),
        IdleEnd::Trouble => label!("why", "trouble"),
        IdleEnd::Shutdown => label!("why", "shutdown"),
    };
    count(IDLE_ENDED, why);
}

pub(super) fn asked(outcome: AskOutcome) {
    let outcome = match outcome {
        AskOutcome::HandedOver => label!("outcome", "handed_over"),
        AskOutcome::InUse => label!("outcome", "in_use"),
        AskOutcome::Silent => label!("outcome", "silent"),
    };
    count(ASKED, outcome);
}

/// The label of each kind, made once.
static KINDS: LazyLock<Vec<[Label; 1]>> = LazyLock::new(|| {
    Kind::EACH.iter().map(|kind| [Label::from_static_parts("kind", kind.name())]).collect()
});

fn labels(kind: Kind) -> Labels {
    let label = KINDS.iter().find(|[label]| label.value() == kind.name());
    label.map_or(&[], |label| label)
}

fn count(name: &'static str, labels: Labels) {
    let key = Key::from_static_parts(name, labels);
    with_recorder(|recorder| recorder.register_counter(&key, &METADATA).increment(1));
}

fn gauge(name: &'static str, labels: Labels, change: f64) {
    let key = Key::from_static_parts(name, labels);
    with_recorder(|recorder| recorder.register_gauge(&key, &METADATA).increment(change));
}

fn record(name: &'static str, labels: Labels, duration: Duration) {
    let key = Key::from_static_parts(name, labels);
    with_recorder(|recorder| {
        recorder.register_histogram(&key, &METADATA).record(duration.as_secs_f64());
    });
}
