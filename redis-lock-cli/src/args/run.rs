//! The arguments of `run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::{Getting, Hold, Key, LOCK};
use crate::duration;

const JOB: &str = "Job";

/// Run a command while holding a lock
///
/// Waits for the lock, runs the command, renews the lock while the command runs, and exits with the
/// command's exit code.
///
/// The lock is released when no process of the command's process group is left. Pipes and
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
/// When a newer `run --newest` of the same key comes, the group of this one gets TERM, and KILL after
/// --grace. The exit code is then 79. The newer command starts when the group has ended.
///
/// In a terminal the command has the foreground. Ctrl-Z stops the command and redis-lock, so the lock
/// ends after --ttl. When they are continued, redis-lock asks the server first. If the lock was lost,
/// the command is killed before it runs on.
///
/// On Linux the command gets KILL when redis-lock dies without passing a signal on, for example by
/// KILL. This reaches the command itself, not what it has started: use `exec` in scripts, and let the
/// store compare REDIS_LOCK_FENCE if that matters. Other systems have no equivalent.
///
/// The command's environment has REDIS_LOCK_KEY and REDIS_LOCK_TOKEN. Locks with one holder add
/// REDIS_LOCK_FENCE, a number larger than that of every earlier holder of the key. --slot adds
/// REDIS_LOCK_SLOT.
///
/// With --json, what happens is written to standard error, one object a line: `event` is
/// `acquired` (with key, token, fence, slot, waited_ms), `left_behind` (key, pids), `lost` (key, reason),
/// `superseded` (key), `stopped` (key; --once has recorded no success), `unconfirmed` (key, message; the
/// server did not confirm the success of --once, so the command may run again), or `error`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "a list of options")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) getting: Getting,
    #[command(flatten)]
    pub(crate) hold: Hold,
    /// Give the command a number in REDIS_LOCK_SLOT that no other holder uses: at least 0, and less than the
    /// permits
    #[arg(long, requires = "permits", help_heading = LOCK)]
    pub(crate) slot: bool,
    /// The lease: how long the lock stays if redis-lock is killed
    #[arg(
        long,
        default_value = "30s",
        value_parser = duration::parse,
        value_name = "TIME",
        help_heading = LOCK
    )]
    pub(crate) ttl: Duration,
    /// Extra time that the server keeps the lock after the lease of redis-lock ends. It covers pauses of this
    /// machine and jumps of the server's clock
    #[arg(long, value_parser = duration::parse, value_name = "TIME", help_heading = LOCK)]
    pub(crate) margin: Option<Duration>,
    /// Don't ask for a fencing token; the server keeps a counter for it
    #[arg(long, help_heading = LOCK)]
    pub(crate) no_fence: bool,
    /// Keep the lock at least this long, even if the command ends earlier
    #[arg(long, value_parser = duration::parse, value_name = "TIME", help_heading = JOB)]
    pub(crate) min_hold: Option<Duration>,
    /// Stop the command once it has held the lock for this long; 24 hours by default
    #[arg(long, value_parser = duration::parse, value_name = "TIME", help_heading = JOB)]
    pub(crate) max_hold: Option<Duration>,
    /// Record that the command exited with 0, unless redis-lock got INT or TERM before all its processes had
    /// ended. While the command runs, Ctrl-C in a terminal reaches it alone. For this long after it got the
    /// lock, `run --once` does not run the command again
    #[arg(
        long,
        value_parser = duration::parse,
        value_name = "TIME",
        conflicts_with_all = ["read", "permits"],
        help_heading = JOB
    )]
    pub(crate) once: Option<Duration>,
    /// Exit with this code when --once found a recorded success
    #[arg(
        long,
        default_value_t = 0,
        value_name = "CODE",
        requires = "once",
        help_heading = JOB
    )]
    pub(crate) done_exit_code: u8,
    /// End older `run --newest` of this key, on all machines: they exit with 79. This command starts when
    /// the older one has ended
    #[arg(long, conflicts_with_all = ["read", "permits", "no_wait", "queue", "once", "min_hold"], help_heading = JOB)]
    pub(crate) newest: bool,
    /// After INT, TERM, a loss or a newer call, the time until the command's processes get KILL
    #[arg(
        long,
        default_value = "5s",
        value_parser = duration::parse,
        value_name = "TIME",
        help_heading = JOB
    )]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) key: Key,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = None)]
    pub(crate) command: Vec<OsString>,
}
