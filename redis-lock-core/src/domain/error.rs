//! Errors, grouped by what the caller can do about them.

use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::domain::clock::rfc3339;
use crate::domain::fault::{Fault, FaultClass};
use crate::{BackendError, ConfigError, Holder, LossReason, NoValue, Token};

/// Why a lock was not acquired, or not kept: one variant for each reaction.
///
/// | Variant | What to do |
/// |---|---|
/// | [`Busy`](Self::Busy) | try later, skip, or answer 409 |
/// | [`Done`](Self::Done) | nothing: another call has done it |
/// | [`Mismatch`](Self::Mismatch) | the caller uses one key for two things: answer 422 |
/// | [`Crowded`](Self::Crowded) | too many wait already: try later, or answer 429 |
/// | [`Superseded`](Self::Superseded) | nothing: a newer call does it |
/// | [`Backend`](Self::Backend) | the server can't be used: retry later, or answer 503 |
/// | [`Lost`](Self::Lost) | look at what was done before you do it again |
/// | [`TooShort`](Self::TooShort) | the lock is held: wait for the next renewal, or ask for a longer ttl |
/// | [`Reentrant`](Self::Reentrant) | mark the inner function `reentrant`, or don't nest |
/// | [`WrongHold`](Self::WrongHold) | ask for more in the outer call |
/// | [`Shutdown`](Self::Shutdown) | this program is ending: answer 503 |
/// | [`NotConfigured`](Self::NotConfigured), [`InvalidConfig`](Self::InvalidConfig), [`InvalidKey`](Self::InvalidKey) | fix the program or its configuration |
///
/// ```
/// use redis_locks::{LockError, Locks};
/// # fn main() -> Result<(), LockError> {
/// let locks = Locks::in_memory();
/// let _held = locks.mutex("report").blocking_acquire()?;
/// let error = locks.mutex("report").no_wait().blocking_acquire().unwrap_err();
/// assert!(error.is_busy());
/// assert_eq!(error.key(), Some("report"));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another holder had the lock for as long as the caller was willing to wait. Try later, or wait longer.
    #[error("lock `{key}` is busy: {}{}; try again later or allow a longer wait", wait_in_words(*.waited), held_by(.holder.as_deref()))]
    #[non_exhaustive]
    Busy {
        /// The key that was asked for.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// Who held it when last seen.
        holder: Option<Box<Holder>>,
    },
    /// An earlier call with [`once`](crate::LockRequest::once) succeeded, and its period is not over.
    #[error("lock `{key}` was completed at {}{}; will not run again until {}{}", rfc3339(*.at), .by.as_deref().map_or_else(String::new, |by| format!(" by {by}")), rfc3339(*.until), .no_value.map_or_else(String::new, |why| format!("; its value is not available: {why}")))]
    #[non_exhaustive]
    Done {
        /// The key that was asked for.
        key: String,
        /// Who did it: the label of the holder.
        by: Option<String>,
        /// When it was done, by the clock of the machine that did it.
        at: SystemTime,
        /// When its period ends, by the clock of this machine.
        until: SystemTime,
        /// The hold under which it was done.
        token: Box<Token>,
        /// Why this call did not get the value, if it asked for it by [`replay`](crate::LockRequest::replay).
        no_value: Option<NoValue>,
    },
    /// With [`same`](crate::LockRequest::same): the input of this call differs from that of the call that runs or has
    /// completed. Trying again does not help.
    #[error(
        "lock `{key}` belongs to a call with other input, which is running or has finished; use another key for this input"
    )]
    #[non_exhaustive]
    Mismatch {
        /// The key that was asked for.
        key: String,
    },
    /// Too many calls wait for the lock: [`queue`](crate::LockRequest::queue) limits them at the server, and
    /// [`max_waiters`](crate::LockRequest::max_waiters) in this `Locks`. Try later.
    #[error("lock `{key}` is crowded: {waiting} {}", if *.in_line { IN_LINE } else { IN_PROCESS })]
    #[non_exhaustive]
    Crowded {
        /// The key that was asked for.
        key: String,
        /// How many calls waited.
        waiting: usize,
        /// Whether these are places in the server's queue, across all processes, as `queue` counts them.
        in_line: bool,
    },
    /// A newer call with [`newest`](crate::LockRequest::newest) has come for the same key. This one has not begun its
    /// body, or has dropped it before the newer one begins.
    #[error("lock `{key}`: a newer call has superseded this one; there is nothing to do")]
    #[non_exhaustive]
    Superseded {
        /// The key that was asked for.
        key: String,
    },
    /// The lock was lost while it was held. What the body did after that was not protected.
    #[error("lock `{key}` was lost: {reason}; check the effects of this call before you repeat it")]
    #[non_exhaustive]
    Lost {
        /// The key that was held.
        key: String,
        /// What ended the hold.
        reason: LossReason,
    },
    /// Waiting would deadlock: this task, or another task on this blocked thread, already holds the key.
    #[error("lock `{key}` is already held by {}", if *.other_task { OTHER_TASK } else { THIS_TASK })]
    #[non_exhaustive]
    Reentrant {
        /// The key that is held.
        key: String,
        /// Whether another task holds it. That task can't run, because this call blocks its
        /// thread. `reentrant` does not help then.
        other_task: bool,
    },
    /// This code already holds the key, but not in a way that allows this. A reentrant call can't join such a hold,
    /// or the hold to downgrade is not a writer's.
    #[error("lock `{key}`: {reason}")]
    #[non_exhaustive]
    WrongHold {
        /// The key of the hold.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The server could not be reached, did not answer in time, or refused. No other holder is known.
    #[error(transparent)]
    #[non_exhaustive]
    Backend {
        /// What happened.
        source: BackendError,
    },
    /// No server was named.
    #[error(
        "no lock server is configured: set REDIS_URL, or build a `Locks` and call `install()` on it at start-up"
    )]
    NotConfigured,
    /// An option, or a combination of options, has no meaning.
    #[error("invalid lock configuration: {cause}")]
    #[non_exhaustive]
    InvalidConfig {
        /// What is wrong and what would be right.
        cause: ConfigError,
    },
    /// The key cannot name a lock.
    #[error("invalid lock key {key:?}: {reason}")]
    #[non_exhaustive]
    InvalidKey {
        /// The key as it was given, cut when it is long.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The lock is held, but less of its lease is left than [`ensure`](crate::Guard::ensure) asked for. The next
    /// renewal may extend it far enough.
    #[error("lock `{key}` has {} of its lease left, less than the required {}; wait for the next renewal, or use a longer ttl", in_words(*.remaining), in_words(*.needed))]
    #[non_exhaustive]
    TooShort {
        /// The key that is held.
        key: String,
        /// How much of the lease is left.
        remaining: Duration,
        /// How much was asked for.
        needed: Duration,
    },
    /// `shutdown` or `drain` was called on this `Locks`.
    #[error(
        "this `Locks` takes no calls: it was shut down, is draining, or belongs to the parent of a forked process; use another `Locks`"
    )]
    Shutdown,
}

impl LockError {
    /// Whether the lock was busy: another holder had it, or too many calls were waiting for it.
    ///
    /// ```
    /// assert!(!redis_locks::LockError::Shutdown.is_busy());
    /// ```
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Crowded { .. })
    }

    /// Whether a lock was held and is lost.
    ///
    /// ```
    /// assert!(!redis_locks::LockError::Shutdown.is_lost());
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether the same call may succeed later: the lock was busy, or the server failed in a way that can pass.
    ///
    /// ```
    /// assert!(!redis_locks::LockError::NotConfigured.is_retryable());
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Backend { source } => source.is_retryable(),
            _ => self.is_busy(),
        }
    }

    /// The key, if the error is about one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Busy { key, .. }
            | Self::Done { key, .. }
            | Self::Mismatch { key }
            | Self::Crowded { key, .. }
            | Self::Superseded { key }
            | Self::Lost { key, .. }
            | Self::Reentrant { key, .. }
            | Self::WrongHold { key, .. }
            | Self::TooShort { key, .. }
            | Self::InvalidKey { key, .. } => Some(key),
            Self::Backend { source } => source.key(),
            Self::InvalidConfig { cause } => cause.key(),
            Self::NotConfigured | Self::Shutdown => None,
        }
    }

    /// [`Done`](Self::Done) for a call that wanted the value.
    pub(crate) fn without_value(mut self, why: NoValue) -> Self {
        if let Self::Done { no_value, .. } = &mut self {
            *no_value = Some(why);
        }
        self
    }

    pub(crate) fn backend(key: Option<&str>, fault: &Fault) -> Self {
        if fault.class == FaultClass::Unsupported {
            let (key, detail) = (key.map(Into::into), fault.what.clone());
            return ConfigError::Unsupported { key, detail }.into();
        }
        let (key, fault) = (key.map(Into::into), fault.clone());
        Self::Backend { source: BackendError { key, server: None, fault } }
    }

    /// It happened to no lock that the user knows.
    pub(crate) fn of_no_lock(mut self) -> Self {
        if let Self::Backend { source } = &mut self {
            source.key = None;
        }
        self
    }

    /// Names the server that it happened with.
    pub(crate) fn at(mut self, server: &str) -> Self {
        if let Self::Backend { source } = &mut self {
            source.server = Some(server.into());
        }
        self
    }
}

/// The text, and what caused it: that is what a `main` that returns it prints.
impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, "\n\nCaused by:\n    {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl From<ConfigError> for LockError {
    fn from(cause: ConfigError) -> Self {
        Self::InvalidConfig { cause }
    }
}

const IN_LINE: &str =
    "already waiting in line at the server, and `queue` allows no more; try again later";

const IN_PROCESS: &str =
    "already waiting in this process, and `max_waiters` allows no more; try again later";

const THIS_TASK: &str = "this task; mark the inner use `reentrant` to join the outer hold";

const OTHER_TASK: &str = "another task on this thread, which can't continue while this call blocks the \
     thread; use the async form, or `spawn_blocking`";

/// What it is called in protocols that answer with a number.
impl LockError {
    /// The HTTP status that tells a client what to do. 409: the lock is busy, or its work was done
    /// [`once`](crate::LockRequest::once). 422: other input. 429: too many calls wait. 503: the server can't be used,
    /// or this process shuts down. 500: all others.
    ///
    /// Don't send the error's text: it names the key, and the host and process of the holder.
    ///
    /// ```
    /// assert_eq!(redis_locks::LockError::Shutdown.http_status(), 503);
    /// ```
    #[must_use]
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Busy { .. } | Self::Done { .. } | Self::Superseded { .. } => 409,
            Self::Mismatch { .. } => 422,
            Self::Crowded { .. } => 429,
            Self::Backend { .. } | Self::Shutdown => 503,
            _ => 500,
        }
    }

    /// The status code of gRPC. 10 `ABORTED`: the lock is busy. 3 `INVALID_ARGUMENT`: other input. 6
    /// `ALREADY_EXISTS`: the work was done [`once`](crate::LockRequest::once). 8 `RESOURCE_EXHAUSTED`: too many calls
    /// wait. 14 `UNAVAILABLE`: the server can't be used, or this process shuts down. 13 `INTERNAL`: all others.
    ///
    /// ```
    /// assert_eq!(redis_locks::LockError::Shutdown.grpc_code(), 14);
    /// ```
    #[must_use]
    pub fn grpc_code(&self) -> i32 {
        match self {
            Self::Busy { .. } | Self::Superseded { .. } => 10,
            Self::Mismatch { .. } => 3,
            Self::Done { .. } => 6,
            Self::Crowded { .. } => 8,
            Self::Backend { .. } | Self::Shutdown => 14,
            _ => 13,
        }
    }
}

/// A duration for messages: rounded, in at most two units.
pub(crate) fn in_words(time: Duration) -> String {
    let (seconds, micros) = (time.as_secs(), time.subsec_micros());
    match (seconds, micros) {
        (0, 0) if time.is_zero() => "0 s".into(),
        (0, 0) => "1 us".into(),
        (0, 1..1_000) => format!("{micros} us"),
        (0, 1_000..) => format!("{} ms", micros / 1_000),
        (1..10, 100_000..) => format!("{seconds}.{} s", micros / 100_000),
        (0..60, _) => format!("{seconds} s"),
        (60..3_600, _) => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Less than a millisecond is the time of one question, and no wait.
fn wait_in_words(time: Duration) -> String {
    let is_wait = time >= Duration::from_millis(1);
    if is_wait { format!("waited {}", in_words(time)) } else { "did not wait".into() }
}

pub(crate) fn held_by(holder: Option<&Holder>) -> String {
    match holder {
        Some(Holder { label, token, kept_until, is_done, .. }) => {
            let by = label.as_deref().map_or_else(|| token.to_string(), Into::into);
            match (kept_until.map(rfc3339), is_done) {
                (None, _) => format!(", held by {by}"),
                (Some(until), true) => {
                    format!(", not held: {by} completed it, and `once` keeps it until {until}")
                }
                (Some(until), false) => format!(", kept until {until} by min_hold of {by}"),
            }
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("connection refused")]
    struct Driver(#[source] std::io::Error);

    fn refused(what: &str, io: &'static str) -> LockError {
        let source = Driver(std::io::Error::other(io));
        let fault = Fault::new(FaultClass::Refused, what).because(source);
        LockError::backend(Some("k"), &fault)
    }

    fn chain(error: &dyn Error) -> Vec<String> {
        let mut chain = vec![error.to_string()];
        let mut source = error.source();
        while let Some(error) = source {
            chain.push(error.to_string());
            source = error.source();
        }
        chain
    }

    #[test]
    fn a_chain_of_errors_says_each_thing_once() {
        let error = refused("the server can't be used: connection refused", "refused");
        assert_eq!(chain(&error), ["lock `k`: the server can't be used: connection refused"]);
        let error = refused("the server can't be used: connection refused", "os error 111");
        let said = ["lock `k`: the server can't be used: connection refused", "os error 111"];
        assert_eq!(chain(&error), said);
        let LockError::Backend { source } = &error else { panic!("{error:?}") };
        assert!(source.driver().unwrap().is::<Driver>(), "the driver's error is kept");
    }

    #[test]
    fn an_error_out_of_main_is_a_text() {
        let error = LockError::Shutdown;
        assert_eq!(format!("{error:?}"), error.to_string());
        let error = refused("the server can't be used", "os error 111");
        let causes = "\n\nCaused by:\n    connection refused\n\nCaused by:\n    os error 111";
        assert_eq!(format!("{error:?}"), format!("lock `k`: the server can't be used{causes}"));
    }

    #[test]
    fn times_are_rounded_for_people() {
        for (nanos, said) in [
            (0, "0 s"),
            (1, "1 us"),
            (494_081, "494 us"),
            (12_345_678, "12 ms"),
            (1_000_000_000, "1 s"),
            (2_540_000_000, "2.5 s"),
            (59_999_000_000, "59 s"),
            (61_000_000_000, "1 min 1 s"),
            (7_260_000_000_000, "2 h 1 min"),
        ] {
            assert_eq!(in_words(Duration::from_nanos(nanos)), said);
        }
        assert_eq!(wait_in_words(Duration::from_micros(95)), "did not wait");
        assert_eq!(wait_in_words(Duration::from_millis(2_540)), "waited 2.5 s");
    }

    #[test]
    fn errors_are_compared_by_what_they_say() {
        assert_eq!(refused("a", "one"), refused("a", "other"));
        assert_ne!(refused("a", "one"), refused("b", "one"));
        assert_ne!(refused("a", "one"), LockError::Shutdown);
        assert_eq!(LockError::from(ConfigError::NoSeeds), ConfigError::NoSeeds.into());
    }
}
