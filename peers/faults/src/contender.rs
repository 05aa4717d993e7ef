use anyhow::{Context, Result};

use crate::fault::Fault;

/// A library in its documented best set-up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Contender {
    Ours,
    OursQuorum,
    Rslock,
    Rlock,
    RedlockRs,
    DistributedLock,
    RedisPy,
    PythonRedisLock,
    RedlockJs,
    RedisSemaphore,
}

/// In which language a library is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    Rust,
    Python,
    JavaScript,
}

impl Contender {
    pub(crate) const ALL: [Self; 10] = [
        Self::Ours,
        Self::OursQuorum,
        Self::Rslock,
        Self::Rlock,
        Self::RedlockRs,
        Self::DistributedLock,
        Self::RedisPy,
        Self::PythonRedisLock,
        Self::RedlockJs,
        Self::RedisSemaphore,
    ];

    pub(crate) fn named(id: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|contender| contender.id() == id);
        found.with_context(|| format!("there is no library `{id}`"))
    }

    /// As the command line and the workers have it.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursQuorum => "ours-quorum",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::RedlockRs => "redlock-rs",
            Self::DistributedLock => "distributed-lock",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::RedlockJs => "redlock-js",
            Self::RedisSemaphore => "redis-semaphore",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ours => "redis-locks",
            Self::OursQuorum => "redis-locks, quorum",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::RedlockRs => "redlock (Rust)",
            Self::DistributedLock => "distributed-lock-redis",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::RedlockJs => "redlock (npm)",
            Self::RedisSemaphore => "redis-semaphore",
        }
    }

    pub(crate) fn language(self) -> Language {
        match self {
            Self::RedisPy | Self::PythonRedisLock => Language::Python,
            Self::RedlockJs | Self::RedisSemaphore => Language::JavaScript,
            _ => Language::Rust,
        }
    }

    /// How many independent servers it is given: three where its documentation asks for several.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Ours
            | Self::Rlock
            | Self::DistributedLock
            | Self::RedisPy
            | Self::PythonRedisLock => 1,
            _ => 3,
        }
    }

    /// The options that differ from what every library is given (a ttl of 1 s, a wait of 3 s, 400 ms
    /// for one command).
    pub(crate) fn set_up(self) -> &'static str {
        match self {
            Self::Ours => "one server; `replicas(1)` where a primary fails over; `fenced()`",
            Self::OursQuorum => "three servers, `rejoin` 1.5 s; `fenced()`",
            Self::Rslock => "three servers; the driver's 500 ms for one command; does not renew",
            Self::Rlock => "one server; the driver's 500 ms for one command; renews",
            Self::RedlockRs => "three servers; no time limit for a command; does not renew",
            Self::DistributedLock => {
                "one server (of three it leaves one locked until the ttl); `fred`'s defaults; renews; does \
                 not wait, so the worker asks again every 50 ms"
            }
            Self::RedisPy => "one server; `socket_timeout` 0.4 s; does not renew",
            Self::PythonRedisLock => {
                "one server; `auto_renewal=True`; `socket_timeout` above its blocking pop"
            }
            Self::RedlockJs => "three servers; does not renew",
            Self::RedisSemaphore => "three servers, `RedlockMutex`; renews",
        }
    }

    /// Why a fault is outside of what the library promises, where it is.
    pub(crate) fn promises_nothing(self, fault: Fault) -> Option<&'static str> {
        match (self, fault) {
            (Self::Ours, Fault::Restart) => {
                Some("GUARANTEES.md: a server that loses its data breaks exclusion")
            }
            (Self::Ours, Fault::ClockJump) => {
                Some("GUARANTEES.md: a clock that jumps ahead breaks exclusion")
            }
            (Self::Rslock | Self::RedlockRs | Self::RedisPy | Self::RedlockJs, Fault::LongBody) => {
                Some("the program must extend the lock, or it ends with its ttl")
            }
            (
                Self::Rlock | Self::DistributedLock | Self::RedisPy | Self::PythonRedisLock,
                Fault::FailOver | Fault::Restart | Fault::ClockJump,
            ) => Some("one server, and its documentation does not mention this"),
            (Self::Ours | Self::OursQuorum, Fault::Pause) => {
                Some("GUARANTEES.md: a write in flight needs a fence")
            }
            (_, Fault::Pause) => Some("no fencing numbers for a write in flight"),
            _ => None,
        }
    }
}
