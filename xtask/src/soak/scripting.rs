use std::fmt;

use anyhow::{Result, bail};
use redis_locks::Scripting;

use super::kind::Kind;

/// Which workers use scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All of them, as users do on a server that has scripts.
    Auto,
    /// None of them: mutexes alone, by transactions.
    Never,
    /// Each second one, on the same mutexes.
    Mixed,
}

impl Mix {
    pub(crate) fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "auto" => Self::Auto,
            "never" => Self::Never,
            "mixed" => Self::Mixed,
            other => bail!("there is no `--scripting {other}`; there are auto, never and mixed"),
        })
    }

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

/// Parses the argument of a worker that says whether to use scripts.
pub(crate) fn parse(word: &str) -> Result<Scripting> {
    match word {
        "auto" => Ok(Scripting::Auto),
        "never" => Ok(Scripting::Never),
        other => bail!("a worker knows nothing of scripting `{other}`"),
    }
}

pub(crate) fn word(scripting: Scripting) -> &'static str {
    if scripting == Scripting::Never { "never" } else { "auto" }
}
