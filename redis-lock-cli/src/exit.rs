//! Exit codes, those of `sysexits.h` where they exist, and error messages.

use std::process::ExitCode;
use std::{fmt, io};

use redis_lock_core::{BackendErrorKind, LockError};

/// An exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    pub(crate) const OK: Self = Self(0);
    /// Not held; of `check --strict`: there are warnings.
    pub(crate) const NO: Self = Self(1);
    /// `EX_USAGE`.
    pub(crate) const USAGE: Self = Self(64);
    /// `EX_DATAERR`: the key has a value of another program, which never expires.
    pub(crate) const FOREIGN: Self = Self(65);
    /// `EX_UNAVAILABLE`: the server can't be reached, or refuses.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// `EX_IOERR`.
    pub(crate) const IO: Self = Self(74);
    /// `EX_TEMPFAIL`: another holder has the lock.
    pub(crate) const BUSY: Self = Self(75);
    /// `EX_PROTOCOL`: the lock was lost while the command ran.
    pub(crate) const LOST: Self = Self(76);
    /// `EX_CONFIG`: no server was named, or an option's value makes no sense.
    pub(crate) const CONFIG: Self = Self(78);
    /// A newer call with --newest ended this one.
    pub(crate) const SUPERSEDED: Self = Self(79);
    /// Like shells: the command exists but can't be executed.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// Like shells: the command does not exist.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// Like shells: the command was ended by a signal.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// Why the command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Lock(LockError),
    Io(io::Error),
    Usage(String),
    /// Another holder has the lock, a success is recorded, or a newer call has come.
    Busy {
        error: LockError,
        code: u8,
        quiet: bool,
    },
    /// A file that was named can't be read.
    File {
        name: String,
        error: io::Error,
    },
    Command {
        name: String,
        error: io::Error,
    },
}

impl Failure {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Busy { code, .. } => Code(*code),
            Self::Lock(LockError::Busy { .. }) => Code::BUSY,
            Self::Lock(LockError::Lost { .. }) => Code::LOST,
            Self::Lock(
                LockError::NotConfigured
                | LockError::InvalidConfig { .. }
                | LockError::InvalidKey { .. },
            ) => Code::CONFIG,
            Self::Lock(LockError::Backend { source, .. })
                if source.kind() == BackendErrorKind::OtherKind =>
            {
                Code::CONFIG
            }
            Self::Lock(LockError::Backend { source, .. })
                if source.kind() == BackendErrorKind::Foreign =>
            {
                Code::FOREIGN
            }
            Self::Lock(_) => Code::UNAVAILABLE,
            Self::Io(_) | Self::File { .. } => Code::IO,
            Self::Usage(_) => Code::USAGE,
            Self::Command { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                Code::NOT_FOUND
            }
            Self::Command { .. } => Code::NOT_EXECUTABLE,
        }
    }

    /// Whether it is printed.
    pub(crate) fn is_printed(&self) -> bool {
        match self {
            Self::Busy { quiet, .. } => !quiet,
            _ => true,
        }
    }

    /// One word for it, for programs.
    pub(crate) fn word(&self) -> &'static str {
        match self.code() {
            _ if matches!(self, Self::Busy { error: LockError::Done { .. }, .. }) => "done",
            _ if matches!(self, Self::Busy { error: LockError::Crowded { .. }, .. }) => "crowded",
            _ if matches!(self, Self::Busy { error: LockError::Superseded { .. }, .. }) => {
                "superseded"
            }
            _ if matches!(self, Self::Busy { .. }) => "busy",
            Code::BUSY => "busy",
            Code::LOST => "lost",
            Code::CONFIG => "config",
            Code::USAGE => "usage",
            Code::FOREIGN => "foreign",
            Code::UNAVAILABLE => "unavailable",
            Code::NOT_FOUND | Code::NOT_EXECUTABLE => "command",
            _ => "io",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(LockError::NotConfigured) => f.write_str(
                "no server was named: set REDIS_URL, as in REDIS_URL=redis://localhost:6379, \
                 or pass --url",
            ),
            Self::Lock(LockError::Backend { source, .. }) if source.no_quorum().is_some() => {
                let Some(few) = source.no_quorum() else { return Ok(()) };
                let key = source.key().map_or_else(String::new, |key| format!("lock `{key}`: "));
                write!(f, "{key}only {} of the {} required nodes agreed", few.granted, few.needed)?;
                few.nodes.iter().try_for_each(|it| write!(f, "\n  {}  {}", it.address, it.vote))
            }
            Self::Lock(error) | Self::Busy { error, .. } => error.fmt(f),
            Self::File { name, error } => write!(f, "{name}: {error}"),
            Self::Io(error) => error.fmt(f),
            Self::Usage(what) => f.write_str(what),
            Self::Command { name, error } if name.starts_with('-') => write!(
                f,
                "{name}: {error}; the command begins after `--`, and options of redis-lock stand before it"
            ),
            Self::Command { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

/// The exit code of a command that has printed its report. It stays the same if the reader has closed the
/// pipe.
pub(crate) fn reported(
    written: Result<(), impl Into<Failure>>,
    code: Code,
) -> Result<Code, Failure> {
    match written.map_err(Into::into) {
        Err(Failure::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(code),
        written => written.map(|()| code),
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
