use std::fmt;

use clap::ValueEnum;
use redis_locks::Scripting;

use super::kind::Kind;

/// Which workers use scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    /// All of them, as users do on a server that has scripts
    Auto,
    /// None of them: mutexes alone, by transactions
    Never,
    /// Each second one, on the same mutexes
    Mixed,
}

impl Mix {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Never => "never",
            Self::Mixed => "mixed",
        }
    }

    /// Whether a worker, by its place among the others, does without scripts.
    pub(crate) fn of_worker(self, index: usize) -> Scripting {
        match self {
            Self::Never => Scripting::Never,
            Self::Mixed if index.is_multiple_of(2) => Scripting::Never,
            Self::Auto | Self::Mixed => Scripting::Auto,
        }
    }

    /// Whether all can use a kind of lock: without scripts there are mutexes only.
    pub(crate) fn has(self, kind: &str) -> bool {
        self == Self::Auto || kind == Kind::Mutex.name()
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--scripting {}", self.word())
    }
}
