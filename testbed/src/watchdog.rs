use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Kills a process, and removes its directory, when *this* process ends without having done so:
/// killed, aborted, or exited past all destructors.
///
/// A small shell waits on a pipe that only we hold open. (`PR_SET_PDEATHSIG` would need unsafe
/// code, and fires when the spawning *thread* ends, which test threads do all the time.)
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    pub(crate) fn over(pid: u32, dir: Option<&Path>) -> Self {
        let script = r#"read _; kill -9 "$1" 2>/dev/null; [ -z "$2" ] || rm -rf -- "$2""#;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "watchdog", &pid.to_string()]);
        Self::start(command.arg(dir.unwrap_or_else(|| Path::new(""))))
    }

    /// The same for every process that has these words in its environment, where the system shows
    /// that in files.
    pub(crate) fn over_marked(mark: &str) -> Self {
        let script = r#"read _
            for file in $(grep -lsF "$1" /proc/[0-9]*/environ); do
                pid=${file#/proc/}; pid=${pid%/environ}
                [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
            done"#;
        Self::start(Command::new("/bin/sh").args(["-c", script, "watchdog", mark]))
    }

    /// Removes a network namespace and a network device.
    pub(crate) fn over_island(namespace: &str, device: &str) -> Self {
        let script = r#"read _; ip link del "$2"; ip netns del "$1""#;
        Self::start(Command::new("/bin/sh").args(["-c", script, "watchdog", namespace, device]))
    }

    fn start(command: &mut Command) -> Self {
        let shell = command
            // A signal to the process group of the tests must not end this shell first.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("/bin/sh can be started");
        Self { shell }
    }
}

impl Drop for Watchdog {
    /// The owner has dealt with the process itself: the id may belong to another one soon.
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
