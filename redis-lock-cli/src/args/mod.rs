//! The command line, and its manual.

mod holds;
mod looks;
mod manual;
mod run;

pub(crate) use holds::{Acquire, Release};
pub(crate) use looks::{Check, Ls, Show, Watch};
pub(crate) use run::Run;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use redis_lock_core::Wait;

use crate::exit::Failure;
use crate::{duration, segments};

/// Run commands under distributed locks on Redis or Valkey, look at the locks, and end them.
///
/// It uses the same locks as the Rust library redis-locks. It also shows and respects locks of other
/// clients at the same keys (redis-py, redsync, node-redlock).
#[derive(Debug, Parser)]
#[command(name = "redis-lock", version, max_term_width = 100, after_long_help = manual::MANUAL)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    Run(Run),
    Ls(Ls),
    Show(Show),
    Watch(Watch),
    Release(Release),
    Acquire(Acquire),
    Check(Check),
    Man(Man),
    Completions(Completions),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Common {
    /// The server: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
    /// `redis+unix:///path?db=0`, and the same with valkey. Several servers:
    /// `redis-cluster://host:port,host:port`, `redis-sentinel://host:port,host:port/mymaster`,
    /// `redis-quorum://host:port,host:port,host:port` [env: REDIS_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The prefix of every key, followed by a colon; empty for bare keys [env:
    /// REDIS_LOCKS_NAMESPACE] [default: lock]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// How long a restarted node of a quorum does not vote; by default 60s. Use the same time in all
    /// programs
    #[arg(long, global = true, value_parser = duration::parse_or_zero, value_name = "TIME")]
    pub(crate) rejoin: Option<Duration>,
    /// The certificates of your certificate authority, as PEM; they replace the platform's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// The client certificate, as PEM
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the client certificate, as PEM
    #[arg(long = "tls-key", global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The user name for the sentinels
    #[arg(long, global = true, value_name = "NAME", requires = "sentinel_password_file")]
    pub(crate) sentinel_user: Option<String>,
    /// A file whose first line is the password for the sentinels
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) sentinel_password_file: Option<PathBuf>,
    /// Print JSON for programs, one object a line. The help of each command names the fields
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
}

const WAITING: &str = "Waiting";
const LOCK: &str = "Lock";

/// What is locked.
#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The key, without the namespace
    #[arg(help_heading = None)]
    key: String,
    /// Append a colon and this text, escaped as the attribute escapes it; may be repeated
    #[arg(
        long = "segment",
        visible_alias = "segments",
        value_parser = NonEmptyStringValueParser::new(),
        value_name = "TEXT",
        help_heading = LOCK
    )]
    segments: Vec<String>,
}

impl Key {
    pub(crate) fn text(&self) -> String {
        segments::joined(&self.key, &self.segments)
    }

    /// The key of a lock that is to be taken. A colon at the end is what an empty variable leaves behind, and
    /// such a lock would stand for the work of every day. Only the end is looked at: `a::b` is a fine key.
    pub(crate) fn to_take(&self) -> Result<String, Failure> {
        let key = self.text();
        match key.ends_with(':') {
            false => Ok(key),
            true => Err(Failure::Usage(format!(
                "the key `{key}` ends with a colon: is the variable after it empty?"
            ))),
        }
    }
}

/// The kind of lock: by default a mutex.
#[derive(Debug, Args)]
#[command(next_help_heading = LOCK)]
pub(crate) struct Kind {
    /// Lock for reading: readers share the lock, and exclude writers
    #[arg(long)]
    pub(crate) read: bool,
    /// Let this many holders in at once; use the same number everywhere
    #[arg(long, value_name = "NUMBER", conflicts_with = "read")]
    pub(crate) permits: Option<u32>,
}

/// How to get the lock.
#[derive(Debug, Args)]
#[command(next_help_heading = WAITING)]
pub(crate) struct Getting {
    /// How long to wait for the lock: a time, a number of seconds, `none` or `forever`
    #[arg(
        long,
        short,
        default_value = "forever",
        value_parser = duration::parse_wait,
        value_name = "TIME"
    )]
    pub(crate) wait: Wait,
    /// Don't wait: as --wait none
    #[arg(long, short, visible_alias = "nonblock", conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Exit with this code when another holder has the lock
    #[arg(long, short = 'E', default_value_t = 75, value_name = "CODE")]
    pub(crate) conflict_exit_code: u8,
    /// Print nothing when another holder has the lock, or `run --once` found a recorded success
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Wait only if fewer than this many calls wait already, on all machines together
    #[arg(long, value_name = "NUMBER", conflicts_with = "no_wait")]
    pub(crate) queue: Option<NonZeroUsize>,
    /// How long to wait for a server that is down; by default 10s, with --no-wait 2s at most
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) outage: Option<Duration>,
}

impl Getting {
    pub(crate) fn wait(&self) -> Wait {
        if self.no_wait { Wait::None } else { self.wait }
    }
}

/// What holds it, and beside how many others.
#[derive(Debug, Args)]
#[command(next_help_heading = LOCK)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) kind: Kind,
    /// A name for the holder, which `ls` and `show` print; by default host, process and command
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// Print a manual page
///
/// In the format of man(1): `redis-lock man | man -l -`, or into a file that man finds:
/// `redis-lock man run > ~/.local/share/man/man1/redis-lock-run.1`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command whose page to print; by default the page of the program
    pub(crate) command: Option<String>,
}

/// Print completions for a shell
///
/// bash: `redis-lock completions bash > ~/.local/share/bash-completion/completions/redis-lock`;
/// zsh: `redis-lock completions zsh > _redis-lock`, in a directory of $fpath;
/// fish: `redis-lock completions fish > ~/.config/fish/completions/redis-lock.fish`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
