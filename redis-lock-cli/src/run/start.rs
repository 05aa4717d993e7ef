//! How the command is started: the program runs itself once more, and that process becomes the
//! command. It can do there what a process has to do for itself.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{getpid, getppid};

use super::terminal::{Terminal, stop_as_usual};
use crate::exit::{Code, Failure};

/// The hidden subcommand: `redis-lock __exec PARENT foreground|background text|json COMMAND…`.
pub(crate) const WORD: &str = "__exec";

const FOREGROUND: &str = "foreground";
const JSON: &str = "json";

/// What starts the command, as the leader of a new process group.
pub(crate) fn starter(
    command: &[OsString],
    in_foreground: bool,
    json: bool,
) -> io::Result<Command> {
    let mut starter = Command::new(this_program()?);
    starter
        .arg0("redis-lock")
        .arg(WORD)
        .arg(getpid().as_raw_nonzero().to_string())
        .arg(if in_foreground { FOREGROUND } else { "background" })
        .arg(if json { JSON } else { "text" })
        .args(command)
        .process_group(0);
    Ok(starter)
}

/// On Linux it is found even if its file was replaced, as an upgrade does.
fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.into()) } else { std::env::current_exe() }
}

/// Becomes the command. Comes back only if that failed.
pub(crate) fn become_command(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let [parent, place, format] = [(); 3].map(|()| words.next().unwrap_or_default());
    end_with_parent();
    let is_orphan = getppid().is_none_or(|it| parent != *it.as_raw_nonzero().to_string());
    if is_orphan {
        // The lock ends with its lease, and this command has not begun.
        return Code::LOST.into();
    }
    if place == FOREGROUND {
        Terminal::find().inspect(Terminal::enter);
    }
    stop_as_usual();
    let name = words.next().unwrap_or_default();
    let error = Command::new(&name).args(words).exec();
    let name = OsStr::to_string_lossy(&name).into_owned();
    crate::failed(&Failure::Command { name, error }, format == JSON)
}

/// From now on the system ends this process when its parent ends, however that happens. The command
/// inherits that, but what it starts does not.
fn end_with_parent() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // Without it the command runs as on other systems.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}
