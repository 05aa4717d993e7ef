use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// Whether it was built with TLS: without, it knows no such option, or can't do what it says.
    pub fn speaks_tls(&self) -> bool {
        // It misses a certificate, if it gets as far as to look for one, and ends.
        let output = Command::new(&self.path)
            .args(["--port", "0", "--tls-port", "1", "--save", ""])
            .stdin(Stdio::null())
            .output();
        output.is_ok_and(|output| {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).contains("No tls-cert-file")
        })
    }

    /// The program at this path; `None` where it is no server.
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

    /// Whether a user's right, in the words of `ACL SETUSER`, is known: Redis has rights to channels from
    /// 6.2 on, and channels of one shard from 7.0 on.
    pub(crate) fn knows_right(&self, right: &str) -> bool {
        let is_of_channels = right.starts_with('&') || right.ends_with("channels");
        let is_of_shards = matches!(right, "-spublish" | "-ssubscribe");
        (self.version >= (6, 2, 0) || !is_of_channels)
            && (self.version >= (7, 0, 0) || !is_of_shards)
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
