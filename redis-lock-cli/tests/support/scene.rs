//! A command that leaves traces, so that a test sees whether it works beside the next one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testbed::{Program, Server, eventually};

use super::{SECOND, locks};

/// Writes `A` every 50 ms. A signal ends it half a second later. Not by dash, which starts `sleep` with vfork:
/// where Ctrl-Z stops that child before it has become `sleep`, dash itself never stops.
const WORKER: &str = r#"
[ -n "$BASH_VERSION" ] || exec bash worker
exec 2> /dev/null
echo $$ > pid
trap 'left=10' TERM INT HUP
left=-1
while [ $left -ne 0 ]; do
    echo A >> "$LOG"
    sleep 0.05
    [ $left -gt 0 ] && left=$((left - 1))
done
"#;

/// Writes `A` every 50 ms. Only KILL ends it.
const STUBBORN: &str = r#"
[ -n "$BASH_VERSION" ] || exec bash stubborn
echo $$ > pid
trap '' TERM INT HUP
while :; do echo A >> "$LOG"; sleep 0.05; done
"#;

/// A folder with these scripts as `worker` and `stubborn`, and the file to which they write.
pub(crate) struct Scene {
    folder: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("redis-lock-scene-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let scene = Self { folder };
        scene.write("log", "");
        scene.write("worker", WORKER);
        scene.write("stubborn", STUBBORN);
        scene
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Lets a program find the folder and the log.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.env("LOG", self.path("log")).current_dir(&self.folder);
    }

    /// The program with these arguments, in the folder.
    pub(crate) fn command(&self, server: &Server, arguments: &[&str]) -> Command {
        let mut command = super::command(server);
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Starts `redis-lock run job` with these options, around this shell script.
    pub(crate) fn run(&self, server: &Server, options: &[&str], script: &str) -> super::Running {
        let arguments = [&["run", "job"], options, &["--", "sh", "-c", script]].concat();
        super::Running::spawn(self.command(server, &arguments))
    }

    /// Starts the next holder, which writes `B`, and waits until it stands in the queue.
    pub(crate) fn next(&self, server: &Server) -> Program {
        let script = "echo B >> \"$LOG\"";
        let arguments = ["run", "job", "--label", "next", "--", "sh", "-c", script];
        let next = Program::spawn(self.command(server, &arguments));
        let locks = locks(server);
        eventually(20 * SECOND, "the next holder waits", || {
            !locks.blocking_status("job").unwrap().waiters.is_empty()
        });
        next
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Waits until the worker works.
    pub(crate) fn works(&self) {
        let before = self.log().len();
        eventually(20 * SECOND, "the worker works", || self.log().len() > before);
    }

    /// Whether the worker has ended or is stopped.
    pub(crate) fn is_at_rest(&self) -> bool {
        let pid = fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
        pid.trim().parse().is_ok_and(|pid| matches!(state(pid), 'Z' | 'T'))
    }

    /// Waits until the worker has been silent for a while.
    pub(crate) fn is_silent(&self) {
        eventually(20 * SECOND, "the worker is silent", || {
            let before = self.log().len();
            std::thread::sleep(Duration::from_millis(500));
            self.log().len() == before
        });
    }

    /// Fails if the worker worked beside the next holder, or after it.
    #[track_caller]
    pub(crate) fn assert_no_overlap(&self) {
        self.is_silent();
        let log = self.log();
        let after = log.split_once('B').expect("the next holder has run").1;
        assert!(!after.contains('A'), "the worker worked beside the next holder: {log:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The state of a process as the system names it; `Z` also when it is gone.
pub(crate) fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    state.unwrap_or('Z')
}
