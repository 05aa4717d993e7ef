//! The command line, and its manual.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use redis_lock_core::{Token, Wait};

use crate::{duration, segments};

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
  0    done; of `show`: the lock is held; of `check`: nothing to warn of
  1    `show` and `release`: not held, or not by this token; `release`: you answered no; `check`:
       there are warnings
  64   usage error
  65   another program has written the key, without a ttl or as no lock; `release` can end it
  69   the server can't be reached, or refuses
  74   reading or writing failed
  75   `run` and `acquire`: another holder has the lock, and the wait is over (-E sets another code)
  76   `run`: the lock was lost, and the command was stopped
  78   no server was named, or an option has no meaning
  126  `run`: the command can't be executed
  127  `run`: the command was not found
  128+n  `run`: the command was ended by signal n; `run` and `acquire`: redis-lock was while it waited
  Otherwise `run` exits as its command did.

ENVIRONMENT
  REDIS_URL              the server, where --url is not given. Prefer it where the URL has a
                         password: other users of the machine can read command lines. Empty is
                         as unset
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
  The same from cron, which mails nothing where another machine has the lock:
      redis-lock run nightly -n -q -E 0 --min-hold 10m -- /usr/local/bin/nightly
  One machine of many runs the job; if it fails, the next one tries:
      redis-lock run \"nightly:$(date +%F)\" --once 24h -- /usr/local/bin/nightly
  At most three downloads at a time, on all machines:
      redis-lock run download --permits 3 -- curl -O https://example.com/large
  The key that #[redis_lock(key = \"user:{name}\")] makes of a name:
      redis-lock show user --segment 'J. Doe'
  Is the server fit for locks? Exits with 1 when there are warnings:
      redis-lock check
  All locks with waiters, by jq:
      redis-lock ls --json | jq -r 'select(.waiters | length > 0) | .key'";

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Common {
    /// The server: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
    /// redis+unix:///path?db=0, and the same with valkey; `redis-cluster://host:port,host:port` and
    /// `redis-sentinel://host:port,host:port/mymaster` for several
    /// [env: REDIS_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The prefix of every key, followed by a colon; empty for bare keys [env:
    /// REDIS_LOCKS_NAMESPACE] [default: lock]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// The certificates of your own authority, as PEM; they replace the platform's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// The certificate to show to the servers, as PEM
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key to the certificate, as PEM
    #[arg(long = "tls-key", global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The user of the sentinels, if they ask for one
    #[arg(long, global = true, value_name = "NAME", requires = "sentinel_password_file")]
    pub(crate) sentinel_user: Option<String>,
    /// A file whose first line is the password of the sentinels
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) sentinel_password_file: Option<PathBuf>,
    /// Write JSON, one object a line, for programs; each command's help names the fields
    #[arg(long, global = true, help_heading = "Output")]
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
    Check(Check),
    Man(Man),
    Completions(Completions),
}

const STATUS_FIELDS: &str = "\
JSON
  key      the key, without the namespace
  kind     free, mutex, read, write, permit, or foreign: another client's lock, or data that are
           no lock and have no holder
  limit    how many can hold it at once, of permits; else null
  held     whether it has a holder
  holders  token, label, since (UTC, to the millisecond, by the holder's clock), ttl_ms
           (null: it never expires), fence (null: it asked for none), idle (whether it only keeps
           the lock for its next call; null: only its own process knows), idle_since
  done     what `run --once` has done, while that stays known: by, at, until; else null
  kept_until  until when --min-hold keeps it, after its release; else null
  waiters  in the order in which they came: label, since
  server   version, release (compare-and-delete, script or transaction), scripts (whether they
           are used; without them there are mutexes only), topology (single, sentinel, cluster
           or quorum), epoch and nodes of several: address, role, version, trouble (why it can't
           be connected to, or does not vote), votes (of a quorum)
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
/// Exits with 0 when it is held and with 1 when it is not.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS_FIELDS)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) key: Key,
}

/// What is locked.
#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The key, without the namespace
    key: String,
    /// Goes behind the key and a colon, escaped as the attribute escapes what it inserts; several in
    /// their order
    #[arg(long = "segment", visible_alias = "segments", value_name = "TEXT")]
    segments: Vec<String>,
}

impl Key {
    pub(crate) fn text(&self) -> String {
        segments::joined(&self.key, &self.segments)
    }
}

/// The kind of lock: by default a mutex.
#[derive(Debug, Args)]
pub(crate) struct Kind {
    /// Lock for reading: readers share the lock, and exclude writers
    #[arg(long)]
    pub(crate) read: bool,
    /// Take one of so many permits; name the same number everywhere
    #[arg(long, value_name = "NUMBER", conflicts_with = "read")]
    pub(crate) permits: Option<u32>,
}

/// How to get the lock.
#[derive(Debug, Args)]
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
    /// Say nothing when another holder has the lock, or the command was done already
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) kind: Kind,
    /// A name for the holder, which is shown to people
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// Watch locks as they come and go
///
/// On a terminal the picture is drawn anew at each look, on the alternate screen. Elsewhere, a picture is written when
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
/// Prints the token that names the hold. The lock is not renewed: it ends after --ttl, or by
/// `redis-lock release KEY --token TOKEN`. A program can adopt the token by the library. With
/// --fence the fencing token follows, after a space. With --json it writes `key`, `token` and
/// `fence`.
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) key: Key,
    /// How long the lock lasts
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) ttl: Duration,
    /// Ask for a fencing token: a number that is larger than that of every earlier holder
    #[arg(long)]
    pub(crate) fence: bool,
    #[command(flatten)]
    pub(crate) getting: Getting,
}

/// End a hold: of a token, or of the present holders
///
/// With --token, it gives back the hold whose token `acquire` printed, and no other. Without it, all
/// present holders lose the lock.
///
/// The holder learns the reason, at once if the server's messages reach it. The first waiter gets
/// the lock. A program that does not react to the loss runs on without the lock. Locks of other
/// clients are ended as well, by deleting their key; data that are no lock are left alone.
///
/// Shows who holds it and asks first; answers other than `y` or `yes` leave it alone. Exits with
/// 1 when nothing was released. With --json it writes `key`, `released` and `reason`.
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) key: Key,
    /// Why, for the holder and its logs
    #[arg(long, value_name = "TEXT", required_unless_present = "token")]
    pub(crate) reason: Option<String>,
    /// Give back the hold of this token
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["reason", "yes"])]
    pub(crate) token: Option<Token>,
    #[command(flatten)]
    pub(crate) kind: Kind,
    /// Don't ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Run a command while holding a lock
///
/// Waits for the lock, runs the command, renews the lock while the command runs, and exits as the
/// command did.
///
/// The lock is given back when no process of the command's process group is left. Pipes and
/// background jobs of a script belong to the group. A process that leaves it does not keep the lock:
/// a daemon, a command under setsid, the jobs of an interactive shell. When processes run on for a
/// second after the command, a line on standard error names them.
///
/// INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the group, except those that were ignored
/// when redis-lock was started, as nohup ignores HUP. After INT or TERM the group has --grace to end,
/// then it gets KILL.
///
/// When the lock is lost (the server forgot it, it was released by force, --max-hold has passed), the
/// group gets TERM, and KILL after --grace. The exit code is then 76, not the command's.
///
/// In a terminal the command has the foreground. Ctrl-Z stops the command and redis-lock, so the lock
/// ends after --ttl. When they are continued, redis-lock asks the server first. If the lock was lost,
/// the command is killed before it runs on.
///
/// On Linux the command gets KILL when redis-lock dies without passing a signal on, for example by
/// KILL. This reaches the command itself, not what it has started: use `exec` in scripts, and let the
/// store compare REDIS_LOCK_FENCE if that matters. Other systems have nothing like it.
///
/// The command finds in its environment: REDIS_LOCK_KEY, REDIS_LOCK_TOKEN, and for locks of one
/// holder REDIS_LOCK_FENCE, a number that is larger than that of every earlier holder of the key.
///
/// With --json, what happens is written to standard error, one object a line: `event` is
/// `acquired` (with key, token, fence, waited_ms), `left_behind` (key, pids), `lost` (key, reason),
/// or `error`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) key: Key,
    /// How long the lock outlives redis-lock if that is killed
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) ttl: Duration,
    #[command(flatten)]
    pub(crate) getting: Getting,
    /// Don't ask for a fencing token, for which the server keeps a counter
    #[arg(long)]
    pub(crate) no_fence: bool,
    /// Keep the lock at least this long, also when the command ends earlier
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) min_hold: Option<Duration>,
    /// Remember that the command exited with 0, for this long since it got the lock: where `run --once`
    /// finds that, it does not run the command
    #[arg(long, value_parser = duration::parse, value_name = "TIME", conflicts_with_all = ["read", "permits"])]
    pub(crate) once: Option<Duration>,
    /// Exit with this code when the command was done already
    #[arg(long, default_value_t = 0, value_name = "CODE", requires = "once")]
    pub(crate) done_exit_code: u8,
    /// Stop the command when it has had the lock this long; 24 hours when not given
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) max_hold: Option<Duration>,
    /// How long the command and what it started may take to end after INT, TERM or a loss, until KILL
    #[arg(long, default_value = "5s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) grace: Duration,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Check whether a server is fit for locks
///
/// Connects, acquires and releases a lock of its own, lists the locks, and writes what an operator
/// should know: no append-only file, a policy that evicts keys, clocks that differ between nodes, a
/// ttl shorter than a fail-over, too few replicas, missing rights, nodes that can't be reached, and
/// locks of other clients that never end.
///
/// Exits with 0 when there is nothing to warn of, with 1 when there is, and with 69 when the server
/// can't be used, so it can serve as a probe. With --json it writes `ok`, `version`, `topology`,
/// `scripts`, `pair_ms`, `locks` (how many) and `warnings`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The lease that the programs use, to compare with the time that a fail-over takes
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) ttl: Duration,
    /// How many replicas must have each lock
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub(crate) replicas: u32,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
