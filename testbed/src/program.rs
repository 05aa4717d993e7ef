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
    /// When it was started, in the unit that the system counts in.
    started: u64,
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
        let started = Stat::of(process.id()).map_or(0, |stat| stat.started);
        Self { process, mark, started, _watchdog: watchdog }
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
            let look = Look::at(&self.mark, self.started);
            if look.marked.is_empty() && !look.may_miss_some {
                break;
            }
            look.marked.into_iter().for_each(kill_process);
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.wait();
    }
}

/// One look at all processes.
struct Look {
    /// Those that have the mark in their environment.
    marked: Vec<u32>,
    /// Whether some have no environment to be seen now: a process that is just becoming another program
    /// has none.
    may_miss_some: bool,
}

impl Look {
    /// Looks for processes that were started at `since` or later.
    fn at(mark: &str, since: u64) -> Self {
        let mut look = Self { marked: Vec::new(), may_miss_some: false };
        let Ok(processes) = fs::read_dir("/proc") else { return look };
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        for pid in pids {
            match fs::read(format!("/proc/{pid}/environ")) {
                Ok(environment) if environment.is_empty() => {
                    look.may_miss_some |= Stat::of(pid).is_some_and(|stat| stat.may_run(since));
                }
                Ok(environment) if has(&environment, mark) => look.marked.push(pid),
                _ => {}
            }
        }
        look
    }
}

/// What the system says of a process.
struct Stat {
    has_ended: bool,
    started: u64,
    memory: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may contain anything.
        let mut fields = text.rsplit_once(") ")?.1.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { has_ended, started, memory: fields.next()?.parse().ok()? })
    }

    /// Whether it runs, was started at `since` or later, and is no thread of the system.
    fn may_run(&self, since: u64) -> bool {
        !self.has_ended && self.started >= since && self.memory > 0
    }
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn one_that_shows_no_environment_may_be_missed_while_it_runs() {
        let mut bare = Command::new("/bin/sleep").arg("60").env_clear().spawn().unwrap();
        let stat = Stat::of(bare.id()).unwrap();
        crate::eventually(Duration::from_secs(5), "it has begun, without an environment", || {
            fs::read(format!("/proc/{}/environ", bare.id())).is_ok_and(|found| found.is_empty())
        });
        assert!(Look::at("a mark that nobody has", stat.started).may_miss_some);
        assert!(!stat.may_run(stat.started + 1), "what ran before starts nothing of ours");
        bare.kill().unwrap();
        crate::eventually(Duration::from_secs(5), "it has ended", || {
            Stat::of(bare.id()).is_none_or(|stat| !stat.may_run(0))
        });
        bare.wait().unwrap();
    }
}
