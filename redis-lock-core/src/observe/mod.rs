//! Reports what happens to locks: spans and events (feature `tracing`), metrics (feature
//! `metrics`).
//!
//! `docs/OBSERVABILITY.md` lists what is reported. Without a subscriber, each hook is a branch or
//! two: it allocates nothing and reads no clock. No hook is called while a lock of the engine is
//! held, because subscribers and recorders are the user's code. Each call of theirs is under
//! [`caught`]: it may be made while the thread unwinds.

/// Emits an event when the feature is on. The values in brackets count as used when it is off.
macro_rules! say {
    ($level:ident, [$($value:ident),*], $($what:tt)+) => {{
        #[cfg(feature = "tracing")]
        crate::observe::caught(|| tracing::$level!(target: "redis_locks", $($what)+));
        #[cfg(not(feature = "tracing"))]
        let _ = ($(&$value,)*);
    }};
}

mod events;
pub(crate) mod log;
#[cfg(feature = "metrics")]
mod numbers;
mod reports;

pub(crate) use reports::{caught, later};

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::domain::kind::LockSort;
use crate::domain::status::IdleEvent;
use crate::{LockError, LockKind, LossReason, Token};
use numbers::Series;

/// Whether a subscriber or a recorder may listen. Calls neither.
#[inline]
pub(crate) fn may_be_heard() -> bool {
    events::may_be_heard() || cfg!(feature = "metrics")
}

/// Reports one acquisition, from the call to its end.
///
/// When it is dropped without [`ended`](Self::ended), the caller has dropped the future.
#[derive(Debug)]
pub(crate) struct Acquiring {
    demand: Arc<Demand>,
    series: &'static Series,
    started: Moment,
    span: events::Span,
    is_over: bool,
    /// A test that looks at it later.
    recording: Option<Arc<Recording>>,
}

impl Acquiring {
    /// `None` when there is no subscriber. Boxed, because it would make up most of the caller's future.
    #[inline]
    pub(crate) fn begin(
        demand: &Arc<Demand>,
        recording: Option<&Arc<Recording>>,
    ) -> Option<Box<Self>> {
        (events::are_heard() || cfg!(feature = "metrics") || recording.is_some())
            .then(|| Self::begun(Arc::clone(demand), recording.cloned()))
    }

    #[cold]
    fn begun(demand: Arc<Demand>, recording: Option<Arc<Recording>>) -> Box<Self> {
        let series = Series::of(demand.sort());
        series.waiting(1.0);
        let span = events::acquire(&demand);
        Box::new(Self { demand, series, started: Moment::now(), span, is_over: false, recording })
    }

    /// Another task of this process has the lock.
    pub(crate) fn contended(&self, holder: Option<&str>) {
        self.series.contended();
        self.span.within(|| events::contended(&self.demand, holder, true));
    }

    /// The acquisition ended with this outcome.
    pub(crate) fn ended(mut self, outcome: Result<HoldFacts<'_>, &LockError>) {
        self.is_over = true;
        let waited = Moment::now().since(self.started);
        if let Some(recording) = &self.recording {
            recording.add(&self.demand, Some(outcome.map(|hold| hold.token)));
        }
        match outcome {
            Ok(hold) => {
                self.series.acquired(waited);
                self.span.within(|| events::acquired(&hold, waited));
                hold.report.begin(&hold, self.series);
            }
            Err(error) => {
                self.series.failed(error, waited);
                self.span.within(|| events::failed(&self.demand, error, waited));
            }
        }
    }
}

impl Acquiring {
    /// The acquisition ended with the value of the call that it has waited for.
    pub(crate) fn shared(mut self) {
        self.is_over = true;
        self.series.shared(Moment::now().since(self.started));
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.series.waiting(-1.0);
        if !self.is_over {
            let waited = Moment::now().since(self.started);
            if let Some(recording) = &self.recording {
                recording.add(&self.demand, None);
            }
            self.series.cancelled(waited);
            self.span.within(|| events::abandoned(&self.demand, waited));
        }
    }
}

/// A call for a lock, and how it ended, as [`Locks::records`](crate::Locks::records) gives it.
///
/// ```
/// # let locks = redis_locks::Locks::in_memory().recorded();
/// let _guard = locks.mutex("order:7").blocking_acquire()?;
/// assert_eq!(locks.records()[0].key, "order:7");
/// # Ok::<_, redis_locks::LockError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct LockRecord {
    /// The key; of several keys, all of them with commas between.
    pub key: String,
    /// How it was to be held.
    pub kind: LockKind,
    /// The annotated function that asked, or nothing.
    pub function: &'static str,
    /// The token of the hold, or why the call was refused. `None` when the call was dropped before.
    pub outcome: Option<Result<Token, LockError>>,
}

impl LockRecord {
    /// Whether the call got its lock.
    #[must_use]
    pub fn is_acquired(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }
}

/// All calls of a `Locks` that have ended, in that order.
#[derive(Debug, Default)]
pub(crate) struct Recording(Mutex<Vec<LockRecord>>);

impl Recording {
    fn add(&self, demand: &Demand, outcome: Option<Result<&Token, &LockError>>) {
        let outcome = outcome.map(|it| it.cloned().map_err(Clone::clone));
        let (key, kind) = (demand.key().to_owned(), demand.kind.into());
        let record = LockRecord { key, kind, function: demand.title.function, outcome };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    pub(crate) fn records(&self) -> Vec<LockRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The facts about a hold that are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldFacts<'a> {
    pub(crate) demand: &'a Demand,
    pub(crate) token: &'a Token,
    pub(crate) fence: Option<u64>,
    pub(crate) slot: Option<u32>,
    pub(crate) report: &'a HoldReport,
}

/// Which reports of a hold were made: one at its beginning, one at its end.
#[derive(Debug, Default)]
pub(crate) struct HoldReport {
    /// 0 until the beginning is reported, which happens only when there is a subscriber.
    stage: AtomicU8,
    span: events::HoldSpan,
}

const BEGUN: u8 = 1;
const OVER: u8 = 2;

impl HoldReport {
    fn begin(&self, hold: &HoldFacts<'_>, series: &Series) {
        self.span.open(hold);
        let begun = self.stage.compare_exchange(0, BEGUN, Ordering::AcqRel, Ordering::Relaxed);
        match begun {
            Ok(_) => series.held(hold.slot, 1.0),
            // The hold was lost before its caller got the guard.
            Err(_) => self.span.close(|| {}),
        }
    }

    /// Whether the beginning was reported and the end was not.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.stage.load(Ordering::Acquire) == BEGUN
    }

    /// The end is going to be reported. Returns whether the beginning was; `None` where the end was as well.
    pub(crate) fn end(&self) -> Option<bool> {
        let stage = self.stage.swap(OVER, Ordering::AcqRel);
        (stage != OVER).then_some(stage == BEGUN)
    }
}

/// A hold has ended after this time and, if it was lost, for this reason. `has_begun` is what
/// [`HoldReport::end`] has said.
#[cold]
pub(crate) fn ended(
    hold: HoldFacts<'_>,
    has_begun: bool,
    held: Duration,
    loss: Option<LossReason>,
) {
    if has_begun {
        let series = Series::of(hold.demand.sort());
        series.held(hold.slot, -1.0);
        series.ended(held, loss.as_ref());
    }
    hold.report.span.close(|| match &loss {
        Some(reason) => events::lost(&hold, reason, held),
        None => events::released(&hold, held),
    });
}

/// A newer call has asked a hold to leave.
#[cold]
pub(crate) fn superseded(hold: HoldFacts<'_>) {
    Series::of(hold.demand.sort()).superseded();
    events::superseded(&hold);
}

/// The answer to the release of a hold says that it was lost before.
pub(crate) fn found_lost(hold: HoldFacts<'_>, reason: &LossReason) {
    Series::of(hold.demand.sort()).lost(reason);
    events::found_lost(&hold, reason);
}

/// What a machine or the engine has found, for subscribers and recorders.
#[derive(Debug)]
pub(crate) enum Observation {
    /// Another process has the lock that was asked for, with this value at the key.
    Contended(Arc<Demand>, Option<String>),
    /// A call waits for long; what it would be told if it gave up now.
    LongWait(Arc<Demand>, Box<LockError>),
    /// The lease of a hold was renewed.
    Renewed(LockSort),
    /// A renewal was missed; the lease still runs.
    Missed {
        demand: Arc<Demand>,
        fault: Fault,
        /// Whether it is the first one of this outage.
        is_first: bool,
    },
    /// A command for the lock at this key failed.
    Failed(String, LockSort, Fault),
    /// Something happened to a lease that lingers, or that was asked for because it may.
    Idle(LockSort, IdleEvent),
}

/// The news for operators about a server that fails.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OutageLine {
    /// The name of the server, if there are several.
    pub(crate) server: Option<Arc<str>>,
    pub(crate) why: String,
    /// Zero when it begins.
    pub(crate) lasted: Duration,
    pub(crate) is_over: bool,
}

impl Observation {
    /// Reports it later, where a subscriber may block.
    pub(crate) fn tell(self) {
        let is_warning = matches!(self, Self::LongWait(..) | Self::Missed { is_first: true, .. });
        if is_warning || may_be_heard() {
            later(|| self.report());
        }
    }

    fn report(self) {
        match self {
            Self::Contended(demand, holder) => {
                Series::of(demand.sort()).contended();
                let label = holder.and_then(|holder| Token::from_wire(&holder).label());
                events::contended(&demand, label.as_deref(), false);
            }
            Self::LongWait(demand, error) => log::long_wait(&error, demand.holding.as_deref()),
            Self::Renewed(sort) => Series::of(sort).renewed(true),
            Self::Missed { demand, fault, is_first } => {
                failed(demand.key(), demand.sort(), &fault);
                Series::of(demand.sort()).renewed(false);
                events::missed(demand.key(), &demand.title, &fault, is_first);
            }
            Self::Failed(key, sort, fault) => failed(&key, sort, &fault),
            Self::Idle(sort, event) => idle(sort, event),
        }
    }
}

fn idle(sort: LockSort, event: IdleEvent) {
    let series = Series::of(sort);
    match event {
        IdleEvent::Began => series.idle(1.0),
        IdleEvent::TakenAgain => {
            series.idle(-1.0);
            series.taken_again();
        }
        IdleEvent::Ended(why) => {
            series.idle(-1.0);
            series.idle_ended(why);
        }
        IdleEvent::Asked(outcome) => series.asked(outcome),
    }
}

fn failed(key: &str, sort: LockSort, fault: &Fault) {
    Series::of(sort).fault(fault.kind);
    events::fault(key, &sort.1, fault);
}

/// Describes the metrics to the recorder of now.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    later(numbers::describe);
}

/// What was done once could not be remembered, or the server does not say that it is.
pub(crate) fn not_completed(demand: &Demand, error: &LockError) {
    Series::of(demand.sort()).not_completed();
    log::not_completed(demand, error);
}

/// A value that other calls wait for can't be stored.
#[cfg(feature = "serde")]
pub(crate) fn not_stored(demand: &Demand, why: crate::NoValue) {
    Series::of(demand.sort()).not_stored(why);
    log::not_stored(demand, why);
}

/// This process ended a hold by force.
pub(crate) fn forced(key: &str, reason: &str) {
    numbers::forced();
    events::forced(key, reason);
}

/// In place of the metrics when the `metrics` feature is off: all functions do nothing.
#[cfg(not(feature = "metrics"))]
mod numbers {
    pub(super) use Silence as Series;

    use std::time::Duration;

    use crate::domain::fault::BackendErrorKind;
    use crate::domain::kind::LockSort;
    use crate::domain::status::{AskOutcome, IdleEnd};
    use crate::{LockError, LossReason};

    #[derive(Debug)]
    pub(super) struct Silence;

    impl Silence {
        pub(super) fn of(_: LockSort) -> &'static Self {
            &Self
        }
        pub(super) fn waiting(&self, _: f64) {}
        pub(super) fn held(&self, _: Option<u32>, _: f64) {}
        pub(super) fn contended(&self) {}
        pub(super) fn acquired(&self, _: Duration) {}
        pub(super) fn failed(&self, _: &LockError, _: Duration) {}
        pub(super) fn cancelled(&self, _: Duration) {}
        pub(super) fn shared(&self, _: Duration) {}
        pub(super) fn ended(&self, _: Duration, _: Option<&LossReason>) {}
        pub(super) fn lost(&self, _: &LossReason) {}
        pub(super) fn superseded(&self) {}
        pub(super) fn renewed(&self, _: bool) {}
        pub(super) fn fault(&self, _: BackendErrorKind) {}
        pub(super) fn not_completed(&self) {}
        #[cfg(feature = "serde")]
        pub(super) fn not_stored(&self, _: crate::NoValue) {}
        pub(super) fn idle(&self, _: f64) {}
        pub(super) fn taken_again(&self) {}
        pub(super) fn idle_ended(&self, _: IdleEnd) {}
        pub(super) fn asked(&self, _: AskOutcome) {}
    }

    pub(super) fn forced() {}
}
