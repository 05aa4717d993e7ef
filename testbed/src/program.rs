use std::fs;
use std::io::{self, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::signal::{kill_process, signal};
use crate::watchdog::Watchdog;

/// Marks the processes of one program: children inherit it.
const MARK: &str = "TESTBED_PROGRAM";

/// Any program, while it runs. On drop it is killed with all that it started, in whatever process
/// group; also when the test panics, or its process dies.
///
/// What it started is found where the system shows environments in files (`/proc`).
#[derive(Debug)]
pub struct Program {
    process: Child,
    mark: String,
    _watchdog: Watchdog,
}

impl Program {
    /// Starts it, with the pipes that the caller has set up.
    pub fn spawn(mut command: Command) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The trailing sign keeps number 1 from being found in number 10.
        let value = format!("{}-{number}.", std::process::id());
        let mark = format!("{MARK}={value}");
        let watchdog = Watchdog::over_marked(&mark);
        let process = command.env(MARK, value).spawn().expect("the program can be started");
        Self { process, mark, _watchdog: watchdog }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its standard input, once, where that is a pipe.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.process.stdin.take()
    }

    /// Its standard output, once, where that is a pipe.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.process.stdout.take()
    }

    /// Its standard error, once, where that is a pipe.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.process.stderr.take()
    }

    /// Sends it a signal.
    pub fn signal(&self, what: rustix::process::Signal) {
        signal(self.pid(), what);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// Gives it this to read, and waits for its end and all that it says.
    pub fn output(mut self, input: &str) -> Output {
        if let Some(mut stdin) = self.stdin() {
            // One that does not read to the end is no failure.
            let _ = stdin.write_all(input.as_bytes());
        }
        let (stdout, stderr) = (self.stdout(), self.stderr());
        let errors = std::thread::spawn(move || read_all(stderr));
        let stdout = read_all(stdout);
        let stderr = errors.join().unwrap_or_default();
        let status = self.wait().expect("a child can be waited for");
        Output { status, stdout, stderr }
    }
}

fn read_all(pipe: Option<impl io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // What it started may start more before it is found.
        for _ in 0..1000 {
            let found = marked(&self.mark);
            if found.is_empty() {
                break;
            }
            found.into_iter().for_each(kill_process);
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.wait();
    }
}

/// The processes that have this in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        // That of a process that has ended is empty.
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|bytes| has(&bytes, mark))
    })
    .collect()
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
