//! The arguments of the commands that look: `ls`, `show`, `watch`, `check`.

use std::time::Duration;

use clap::Args;

use super::Key;
use super::manual::STATUS_FIELDS;
use crate::duration;

/// List locks
///
/// Uses SCAN, page by page, which does not block the server. Each lock is printed as soon as it is
/// found. A lock that is acquired or released during the listing may be missing or appear
/// twice.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS_FIELDS)]
pub(crate) struct Ls {
    /// Which keys, without the namespace. `*` matches any text, `?` one byte, `[a-z]` one of these
    /// bytes. `\` escapes the next byte
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
}

/// Show one lock: its holders, since when, and its waiters
///
/// Exits with 0 when the lock is held, and with 1 when it is not.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS_FIELDS)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) key: Key,
    /// Print only the value that a recorded success stored for later calls, as JSON. Exits with 1 if there
    /// is none
    #[arg(long)]
    pub(crate) value: bool,
}

/// Watch locks change
///
/// A terminal shows the locks on its alternate screen, and refreshes them. Elsewhere each change is
/// printed. With --json a change is one object with the fields `at` and `locks`, an array of what
/// `ls --json` prints. Ends with Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Which keys, as for `ls`
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// The time between two looks
    #[arg(long, default_value = "1s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// Stop after this number of looks
    #[arg(long, value_name = "NUMBER")]
    pub(crate) count: Option<u64>,
}

/// Check whether a server is fit for locks
///
/// Connects, acquires and releases a lock under a key that only this command uses, lists the locks,
/// and warns about what can lose or block locks: no append-only file, a policy that evicts keys, clocks
/// that differ between nodes, a ttl shorter than a failover, too few replicas, missing rights,
/// unreachable nodes, and locks of other clients that never expire.
///
/// Exits with 0 when the server can be used and with 69 when it can't, so it can serve as a probe.
/// Warnings are printed, but change the exit code only with --strict. With --json it
/// prints `ok` (no warnings), `version`, `topology`, `scripts`, `pair_ms` (the time of an acquisition
/// and its release), `locks` (how many) and `warnings`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Exit with 1 when there are warnings
    #[arg(long)]
    pub(crate) strict: bool,
    /// The ttl that your programs use, to compare with the time that a failover takes
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) ttl: Duration,
    /// How many replicas must confirm each lock
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub(crate) replicas: u32,
}
