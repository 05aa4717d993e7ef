//! Programs of the machine: where they are, and how they are run.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where the program `name` is on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Runs it with its output going to stderr, because stdout may be the caller's result.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .is_ok_and(|status| status.success())
}

/// Not through `eprintln!`, which the test harness swallows: a download has to be seen.
pub(crate) fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "testbed: {what}");
}
