//! Errors, grouped by what the caller can do about them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::domain::clock::rfc3339;
use crate::domain::label::harmless;
use crate::{ConfigError, Holder, LossReason, NoQuorum, NoValue, NotReplicated, Token};

/// The most characters of an error's text that come from a server.
const MOST_TEXT: usize = 1_000;

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
    #[error("lock `{key}` is busy: waited {}{}; try again later or allow a longer wait", in_words(*.waited), held_by(.holder.as_deref()))]
    #[non_exhaustive]
    Busy {
        /// The key that was asked for.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// Who held it when last seen.
        holder: Option<Box<Holder>>,
    },
    /// Another call has done what this one was to do, less than a [period](crate::LockRequest::once) ago.
    #[error("lock `{key}` was completed at {}{}; will not run again until {}{}", rfc3339(*.at), .by.as_deref().map_or_else(String::new, |by| format!(" by {by}")), rfc3339(*.until), .no_value.map_or_else(String::new, |why| format!("; its value can't be had: {why}")))]
    #[non_exhaustive]
    Done {
        /// The key that was asked for.
        key: String,
        /// Who did it: the label of the holder.
        by: Option<String>,
        /// When it was done, by the clock of the machine that did it.
        at: SystemTime,
        /// Until when that stays known, by the clock of this machine.
        until: SystemTime,
        /// The hold under which it was done.
        token: Box<Token>,
        /// Why this call did not get the value, where it asked for it by
        /// [`replay`](crate::LockRequest::replay).
        no_value: Option<NoValue>,
    },
    /// This call was given something else than the call that does it, or has done it:
    /// [`same`](crate::LockRequest::same). It is no use to try again.
    #[error(
        "lock `{key}` belongs to a call with other input: that call runs, or has done it; use another key for other input"
    )]
    #[non_exhaustive]
    Mismatch {
        /// The key that was asked for.
        key: String,
    },
    /// As many calls wait for the lock already as [`queue`](crate::LockRequest::queue) allows at the server, or
    /// [`max_waiters`](crate::LockRequest::max_waiters) in this `Locks`. Try later.
    #[error("lock `{key}` is crowded: {waiting} {}", if *.in_line { IN_LINE } else { IN_PROCESS })]
    #[non_exhaustive]
    Crowded {
        /// The key that was asked for.
        key: String,
        /// How many calls waited.
        waiting: usize,
        /// Whether these are places in the server's line, of all processes, as `queue` counts them.
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
    #[error("lock `{key}` was lost: {reason}; check what was done under it before doing it again")]
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
        /// Whether another task has it, which this call keeps from going on by blocking the thread
        /// that it runs on. `reentrant` does not help then.
        other_task: bool,
    },
    /// This code has a hold of the key already, and not one that can be used so: a reentrant call can't
    /// join it, or it is to be downgraded and is no writer's.
    #[error("lock `{key}`: {reason}")]
    #[non_exhaustive]
    WrongHold {
        /// The key that it is about.
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
    /// The lock is held, but less of its lease is left than [`ensure`](crate::Guard::ensure) asked for. The
    /// next renewal may make up for that.
    #[error("lock `{key}` is held for another {}, and {} were asked for; wait for the next renewal, or ask for a longer ttl", in_words(*.remaining), in_words(*.needed))]
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
    #[error("these locks are shut down; acquire through a `Locks` that is still in use")]
    Shutdown,
}

impl LockError {
    /// Whether the lock was busy: another holder had it, or too many calls wait for it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Crowded { .. })
    }

    /// Whether a lock that was held is not held any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether the same call may succeed a while later: the lock was busy, or the server failed in a
    /// way that passes.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Backend { source } => source.is_retryable(),
            _ => self.is_busy(),
        }
    }

    /// The key it happened to, where there is one.
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
    "wait in line at the server already, and queue allows no more; try again later";

const IN_PROCESS: &str =
    "calls of this process wait for it already, and max_waiters allows no more; try again later";

const THIS_TASK: &str = "this task; mark the inner use `reentrant` to join the outer hold";

const OTHER_TASK: &str = "another task on this thread, which can't go on while this call blocks the \
     thread; use the async form, or call it by `spawn_blocking`";

/// A duration for messages: rounded, in at most two units.
pub(crate) fn in_words(time: Duration) -> String {
    let (seconds, micros) = (time.as_secs(), time.subsec_micros());
    match (seconds, micros) {
        (0, 0) if time.is_zero() => "not at all".into(),
        (0, 0) => "1 us".into(),
        (0, 1..1_000) => format!("{micros} us"),
        (0, 1_000..) => format!("{} ms", micros / 1_000),
        (1..10, 100_000..) => format!("{seconds}.{} s", micros / 100_000),
        (0..60, _) => format!("{seconds} s"),
        (60..3_600, _) => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
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

/// A failure of the server or of the way to it.
///
/// Ask its [`kind`](Self::kind) to decide, and print it to tell people: the text is complete. So
/// [`source`](Error::source) gives only what the text does not say. The driver's error is at
/// [`driver`](Self::driver).
#[derive(Clone, PartialEq, Debug)]
pub struct BackendError {
    key: Option<Arc<str>>,
    /// Where the server is, or the servers, without credentials.
    server: Option<Arc<str>>,
    fault: Fault,
}

impl BackendError {
    /// The lock it happened to, where it happened to one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What sort of failure it is.
    #[must_use]
    pub fn kind(&self) -> BackendErrorKind {
        self.fault.kind
    }

    /// Whether trying again can help: `false` for missing rights, wrong passwords, foreign values and
    /// other kinds of lock.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !self.fault.class.is_final()
    }

    /// How many replicas had it, where that were fewer than
    /// [`LocksBuilder::replicas`](crate::LocksBuilder::replicas) asked for.
    #[must_use]
    pub fn not_replicated(&self) -> Option<NotReplicated> {
        self.fault.source.as_deref()?.downcast_ref().copied()
    }

    /// What each node of a quorum said, where too few of them agreed.
    #[must_use]
    pub fn no_quorum(&self) -> Option<&NoQuorum> {
        self.fault.source.as_deref()?.downcast_ref()
    }

    /// The error of the `redis` crate, where it had one; `downcast_ref` gives it by its own type.
    #[must_use]
    pub fn driver(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        let is_ours = self.not_replicated().is_some() || self.no_quorum().is_some();
        self.fault.source.as_deref().filter(|_| !is_ours)
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = &self.fault.what;
        match (&self.key, &self.server) {
            (Some(key), Some(server)) => write!(f, "lock `{key}` ({server}): {what}"),
            (Some(key), None) => write!(f, "lock `{key}`: {what}"),
            (None, Some(server)) => write!(f, "{server}: {what}"),
            (None, None) => f.write_str(what),
        }
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let mut source: &(dyn Error + 'static) = self.fault.source.as_deref()?;
        if source.is::<redis::RedisError>() {
            // The text has its words, without names that only the driver knows.
            return None;
        }
        while self.fault.what.contains(&source.to_string()) {
            source = source.source()?;
        }
        Some(source)
    }
}

/// What sort of failure a [`BackendError`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// There is no connection, or it broke.
    Unreachable,
    /// No answer came in time.
    TimedOut,
    /// The server refused the command for a reason that has no kind here, such as loading its data.
    Refused,
    /// The password is wrong, or the user lacks a right.
    Rights,
    /// The server is a replica.
    ReadOnly,
    /// The server has reached its `maxmemory`.
    Full,
    /// Fewer replicas than asked for have it, or are connected.
    NotReplicated,
    /// Too few of the servers of a quorum agreed.
    NoQuorum,
    /// A value of another program stands at the key.
    Foreign,
    /// The key is in use as another kind of lock.
    OtherKind,
    /// The server gave an answer that makes no sense, or is no lock server.
    Protocol,
}

impl BackendErrorKind {
    /// One word for it, as metrics have it.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Rights => "rights",
            Self::ReadOnly => "read_only",
            Self::Full => "full",
            Self::NotReplicated => "not_replicated",
            Self::NoQuorum => "no_quorum",
            Self::Foreign => "foreign",
            Self::OtherKind => "other_kind",
            Self::Protocol => "protocol",
        }
    }
}

/// One word for it, such as `timed_out`. It stays the same between versions.
impl fmt::Display for BackendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// What is known of a command that failed: whether it was executed, and whether trying again may
/// help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultClass {
    /// It was not executed; trying again may help.
    Refused,
    /// It was not executed, because its slot is being moved to another node.
    Moving,
    /// It was not executed, and will not be until an operator changes something.
    Permanent,
    /// It was not executed, because the request makes no sense.
    Misuse,
    /// It was not executed, because this server can't do it.
    Unsupported,
    /// It was executed for some of its keys. The slots of the others are being moved.
    PartlyDone,
    /// It may have been executed: the connection broke.
    Unknown,
    /// It may have been executed, or may be executed later: no answer came in time.
    Late,
}

/// A command's failure, with what the engine needs to decide what to do.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) class: FaultClass,
    pub(crate) kind: BackendErrorKind,
    pub(crate) what: String,
    pub(crate) source: Option<Arc<dyn Error + Send + Sync>>,
}

impl FaultClass {
    /// Whether the command may have been executed, or may be executed later.
    pub(crate) fn is_unknown(self) -> bool {
        matches!(self, Self::PartlyDone | Self::Unknown | Self::Late)
    }

    /// Whether trying again can't help.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Permanent | Self::Misuse | Self::Unsupported)
    }

    /// Whether it was refused because a slot is being moved to another node, which takes
    /// milliseconds.
    pub(crate) fn is_moving(self) -> bool {
        matches!(self, Self::Moving | Self::PartlyDone)
    }
}

/// Faults are equal when their class and text are: the driver's errors can't be compared.
impl PartialEq for Fault {
    fn eq(&self, other: &Self) -> bool {
        self.class == other.class && self.what == other.what
    }
}

impl Fault {
    /// Something that needs scripts was asked of a server that is used without them.
    pub(crate) fn needs_scripts(what: &str) -> Self {
        let what = format!(
            "{what} needs scripts, and this server is used without: it denies EVAL, or \
             `Scripting::Never` was chosen; grant the rights `+eval +evalsha`, or use a mutex"
        );
        Self::new(FaultClass::Unsupported, what)
    }

    /// The driver panicked while it connected.
    pub(crate) fn driver_panicked() -> Self {
        let what = "the driver failed while connecting; standard error has its message";
        Self::new(FaultClass::Permanent, what).of(BackendErrorKind::Protocol)
    }

    /// A fault of the kind that most faults of its class are. What the text quotes of others can't
    /// pretend to be more than that.
    pub(crate) fn new(class: FaultClass, what: impl fmt::Display) -> Self {
        let kind = match class {
            FaultClass::Unknown => BackendErrorKind::Unreachable,
            FaultClass::Late => BackendErrorKind::TimedOut,
            FaultClass::Misuse => BackendErrorKind::OtherKind,
            _ => BackendErrorKind::Refused,
        };
        Self { class, kind, what: harmless(what, MOST_TEXT), source: None }
    }

    /// The same as another kind.
    pub(crate) fn of(self, kind: BackendErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The same with the error behind it.
    pub(crate) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
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
            (0, "not at all"),
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
    }

    #[test]
    fn errors_are_compared_by_what_they_say() {
        assert_eq!(refused("a", "one"), refused("a", "other"));
        assert_ne!(refused("a", "one"), refused("b", "one"));
        assert_ne!(refused("a", "one"), LockError::Shutdown);
        assert_eq!(LockError::from(ConfigError::NoSeeds), ConfigError::NoSeeds.into());
    }
}
