//! Failures of servers: what users see, and what the engine decides by.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::domain::label::harmless;
use crate::{NoQuorum, NotReplicated};

/// The most characters of an error's text that come from a server.
const MOST_TEXT: usize = 1_000;

/// A failure of the server or of the way to it.
///
/// Ask its [`kind`](Self::kind) to decide, and print it to tell people: the text is complete. So
/// [`source`](Error::source) gives only what the text does not say. The driver's error is at
/// [`driver`](Self::driver).
///
/// ```
/// use redis_locks::{BackendErrorKind, LockError};
/// # let error = LockError::Shutdown;
/// if let LockError::Backend { source, .. } = &error {
///     if source.kind() == BackendErrorKind::Full {
///         eprintln!("free memory: {source}");
///     }
/// }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct BackendError {
    pub(super) key: Option<Arc<str>>,
    /// Where the server is, or the servers, without credentials.
    pub(super) server: Option<Arc<str>>,
    pub(super) fault: Fault,
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

    /// Replica counts, if fewer replicas confirmed than
    /// [`LocksBuilder::replicas`](crate::LocksBuilder::replicas) asks for.
    ///
    /// ```
    /// # fn show(source: redis_locks::BackendError) {
    /// if let Some(few) = source.not_replicated() {
    ///     eprintln!("{} of {} replicas", few.got, few.wanted);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn not_replicated(&self) -> Option<NotReplicated> {
        self.fault.source.as_deref()?.downcast_ref().copied()
    }

    /// What each node of a quorum said, where too few of them agreed.
    ///
    /// ```
    /// # fn show(source: redis_locks::BackendError) {
    /// for node in source.no_quorum().iter().flat_map(|it| &it.nodes) {
    ///     eprintln!("{node}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn no_quorum(&self) -> Option<&NoQuorum> {
        self.fault.source.as_deref()?.downcast_ref()
    }

    /// The error of the `redis` crate, if there was one; `downcast_ref` returns it as its own
    /// type.
    ///
    /// ```
    /// # fn show(source: redis_locks::BackendError) {
    /// let driver = source.driver().and_then(|it| it.downcast_ref::<redis_locks::redis::RedisError>());
    /// # }
    /// ```
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
    /// Fewer replicas than asked for have confirmed, or are connected.
    NotReplicated,
    /// Too few of the servers of a quorum agreed.
    NoQuorum,
    /// The key has a value of another program.
    Foreign,
    /// The key is in use as another kind of lock.
    OtherKind,
    /// The server gave an answer that makes no sense, or is no lock server.
    Protocol,
}

impl BackendErrorKind {
    /// One word for it, as in metrics.
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

    /// The same with its source.
    pub(crate) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }
}
