//! The command line, and its manual.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use redis_lock_core::{LockError, Locks, Token, Wait};

use crate::duration;

/// Look at distributed locks on Redis or Valkey, end them, and run commands under them.
///
/// The locks are those of the library redis-locks. Locks of other clients at the same keys
/// (redis-py, redsync, node-redlock) are shown and respected as well.
#[derive(Debug, Parser)]
#[command(name = "redis-lock", version, max_term_width = 100, after_long_help = MANUAL)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) task: Task,
}

const MANUAL: &str = "\
EXIT STATUS
  0    done; of `show`: somebody holds the lock
  1    the answer is no: `show` and `release` of a lock that nobody holds, or that the token does
       not hold; `release` declined
  64   the command line has a mistake
  69   the server can't be reached, or refuses
  74   reading or writing failed
  75   `run` and `acquire`: somebody else holds the lock, and the wait is over
  76   `run`: the lock was lost, and the command was stopped
  78   no server was named, or an option has no meaning
  126  `run`: the command can't be executed
  127  `run`: the command was not found
  128+n  `run`: the command, or redis-lock while it waited, was ended by signal n
  Otherwise `run` exits as its command did.

ENVIRONMENT
  REDIS_URL              the server, where --url is not given
  REDIS_LOCKS_NAMESPACE  what stands before every key, where --namespace is not given
  NO_COLOR               no colours; there are none either when the output is not a terminal

EXAMPLES
  Who holds what?
      redis-lock ls
      redis-lock ls 'order:*'
  Is the nightly job running, and for how long?
      redis-lock show nightly
  Watch the queue before a lock:
      redis-lock watch 'order:42'
  A holder hangs; end its hold and tell it why:
      redis-lock release order:42 --reason 'hangs since 14:00, INC-311'
  A shell script takes a lock, and another one ends it:
      token=$(redis-lock acquire deploy --ttl 10m --wait none) || exit
      redis-lock release deploy --token \"$token\"
  One machine of many runs the job, and no other within the next ten minutes:
      redis-lock run nightly --wait none --min-hold 10m -- /usr/local/bin/nightly
  All locks that somebody waits for, by jq:
      redis-lock ls --json | jq -r 'select(.waiters | length > 0) | .key'";

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The server: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
    /// redis+unix:///path?db=0, and the same with valkey; `redis-cluster://host:port,host:port` and
    /// `redis-sentinel://host:port,host:port/mymaster` for several
    /// [env: REDIS_URL]
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// The prefix of every key, followed by a colon; empty for bare keys [env:
    /// REDIS_LOCKS_NAMESPACE] [default: lock]
    #[arg(long, global = true, value_name = "NAME")]
    namespace: Option<String>,
    /// Write JSON, one object a line, for programs; each command's help names the fields
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    Ls(Ls),
    Show(Show),
    Watch(Watch),
    Acquire(Acquire),
    Release(Release),
    Run(Run),
    Man(Man),
    Completions(Completions),
}

const STATUS_FIELDS: &str = "\
JSON
  key      the key, without the namespace
  kind     free, mutex, read, write, permit, or foreign: another client's lock, or data that are
           no lock, and then nobody holds it
  limit    how many can hold it at once, of permits; else null
  held     whether anybody holds it
  holders  who: token, label, since (UTC, to the millisecond, by the holder's clock), ttl_ms
           (null: it never expires), fence (null: it asked for none), idle (whether it only keeps
           the lock for its next call; null: only its own process knows), idle_since
  waiters  who waits, in the order of their coming: label, since
  server   version, release (compare-and-delete, script or transaction), scripts (whether they
           are used; without them there are mutexes only), topology (single, sentinel or cluster),
           epoch and nodes of several: address, role, version, trouble (why it can't be
           connected to)
  Fields may be added; these stay.";

/// List locks
///
/// Asks with SCAN, page by page, which does not block the server; each lock is written as soon as
/// it is known. A lock that comes or goes meanwhile may be missing or come twice.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS_FIELDS)]
pub(crate) struct Ls {
    /// Which keys: `*` is any text, `?` one byte, `[a-z]` one of these, `\` takes the next byte as
    /// it is; the namespace is not part of it
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
}

/// Show one lock: who holds it, since when, and who waits
///
/// Exits with 0 when somebody holds it and with 1 when nobody does.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS_FIELDS)]
pub(crate) struct Show {
    /// The key, without the namespace
    pub(crate) key: String,
}

/// Watch locks as they come and go
///
/// On a terminal the picture is drawn anew at each look. Elsewhere, a picture is written when
/// something has changed: one line of JSON with --json, with the fields `at` and `locks`, which
/// holds what `ls --json` would write. Ends with ^C.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Which keys, as for `ls`
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// The time between two looks
    #[arg(long, default_value = "1s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// Stop after so many looks
    #[arg(long, value_name = "NUMBER")]
    pub(crate) count: Option<u64>,
}

/// Take a lock that outlives this command
///
/// Prints the token that names the hold. The lock stands until somebody ends it with
/// `redis-lock release KEY --token TOKEN`, adopts it by the library, or its time is up: nobody
/// renews it meanwhile. With --json it writes `key` and `token`.
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    /// The key, without the namespace
    pub(crate) key: String,
    /// When it ends by itself
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) ttl: Duration,
    /// How long to wait for the lock: a time, `none` or `forever`
    #[arg(long, default_value = "forever", value_parser = duration::parse_wait, value_name = "TIME")]
    pub(crate) wait: Wait,
    /// A name for the holder, which is shown to people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// End a hold: of a token, or of whoever has a lock now
///
/// With --token, the hold that `acquire` printed the token of is given back, and no other; without
/// it, whoever has the lock now loses it.
///
/// The holder learns the reason, at once where the server's messages reach it, and the first who
/// waits gets the lock. A program that does not react to the loss runs on without the lock. Locks
/// of other clients are ended as well, by deleting their key; data that are no lock are left alone.
///
/// Shows who holds it and asks first; answers other than `y` or `yes` leave it alone. Exits with
/// 1 when nothing was released. With --json it writes `key`, `released` and `reason`.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The key, without the namespace
    pub(crate) key: String,
    /// Why, for the holder and its logs
    #[arg(long, value_name = "TEXT", required_unless_present = "token")]
    pub(crate) reason: Option<String>,
    /// Give back the hold of this token
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["reason", "yes"])]
    pub(crate) token: Option<Token>,
    /// Don't ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Run a command while holding a lock
///
/// Waits for the lock, runs the command, renews the lock while it runs, and gives the lock back
/// when it ends. Exits as the command did.
///
/// Signals (INT, TERM, HUP, QUIT, USR1, USR2) are passed on to the command. Unless it runs in the
/// foreground of a terminal, the command gets a process group of its own, and signals reach all of
/// it.
///
/// When the lock is lost (the server forgot it, somebody released it by force, --max-hold has
/// passed), the command is stopped: TERM, and KILL after --grace. The exit code is 76 then,
/// whatever the command's own. If redis-lock itself is killed with KILL, the command runs on
/// unprotected; let what it writes to compare REDIS_LOCK_FENCE if that matters.
///
/// The command finds in its environment: REDIS_LOCK_KEY, REDIS_LOCK_TOKEN, and REDIS_LOCK_FENCE, a
/// number that is larger than that of every earlier holder of the key.
///
/// With --json, what happens is written to standard error, one object a line: `event` is
/// `acquired` (with key, token, fence, waited_ms), `lost` (key, reason), or `error`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The key, without the namespace
    pub(crate) key: String,
    /// How long the lock outlives redis-lock if that is killed
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) ttl: Duration,
    /// How long to wait for the lock: a time, `none` or `forever`
    #[arg(long, default_value = "forever", value_parser = duration::parse_wait, value_name = "TIME")]
    pub(crate) wait: Wait,
    /// Keep the lock at least this long, also when the command ends earlier
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) min_hold: Option<Duration>,
    /// Stop the command when it has had the lock this long; 24 hours when not given
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) max_hold: Option<Duration>,
    /// The time between TERM and KILL after a loss
    #[arg(long, default_value = "5s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) grace: Duration,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Write a manual page
///
/// In the format of man(1): `redis-lock man | man -l -`, or into a file that man finds:
/// `redis-lock man run > ~/.local/share/man/man1/redis-lock-run.1`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The page of this command; that of the program when not given
    pub(crate) command: Option<String>,
}

/// Write completions for a shell
///
/// bash: `redis-lock completions bash > ~/.local/share/bash-completion/completions/redis-lock`;
/// zsh: `redis-lock completions zsh > _redis-lock`, in a directory of $fpath;
/// fish: `redis-lock completions fish > ~/.config/fish/completions/redis-lock.fish`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    pub(crate) shell: clap_complete::Shell,
}

impl Common {
    /// The locks on the server, with a label that tells what runs under them.
    /// Connected, because `run` would else wait as long for the server as for the lock.
    pub(crate) async fn locks(&self, command: Option<&str>) -> Result<Locks, LockError> {
        // Not read by clap, which would name both in every usage line, as if they were missing.
        let set = |given: &Option<String>, name| given.clone().or_else(|| std::env::var(name).ok());
        let Some(url) = set(&self.url, "REDIS_URL") else { return Err(LockError::NotConfigured) };
        let mut builder = Locks::builder().url(url);
        if let Some(namespace) = set(&self.namespace, "REDIS_LOCKS_NAMESPACE") {
            builder = builder.namespace(namespace);
        }
        if let Some(command) = command {
            let host = rustix::system::uname();
            let host = host.nodename().to_string_lossy();
            builder = builder.label(format!("{host}/{} {command}", std::process::id()));
        }
        builder.connect().await
    }
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
