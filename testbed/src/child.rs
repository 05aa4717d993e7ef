use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::signal::{continue_process, kill_process, signal, stop_process};
use crate::watchdog::Watchdog;

/// Names the role of a re-executed test binary.
const ROLE: &str = "TESTBED_CHILD";
/// Marks what a child tells its parent, among the words of the test harness.
const MARK: &str = "@child ";

/// The test binary, run once more as a process of its own, in which only one role is played.
///
/// The test file declares its roles in one test, which does nothing in the parent:
///
/// ```no_run
/// # fn hold(io: &mut testbed::ChildIo) { io.say("holding"); io.hear(); }
/// # /*
/// #[test]
/// # */
/// fn child_process() {
///     testbed::dispatch(&[("hold", hold)]);
/// }
///
/// let mut child = testbed::Child::spawn("hold", &[("REDIS_URL", "redis://…")]);
/// child.expect("holding");
/// child.kill9();
/// ```
///
/// It is killed on drop, and when the parent dies.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: VecDeque<String>,
    _watchdog: Watchdog,
}

impl Child {
    /// Starts the role `role` of this test binary, with these variables in its environment.
    pub fn spawn(role: &str, variables: &[(&str, &str)]) -> Self {
        Self::spawn_with(role, |command| {
            command.envs(variables.iter().copied());
        })
    }

    /// Starts a role in a process that the caller may prepare further.
    pub fn spawn_with(role: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let program = env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command
            .args(["child_process", "--exact", "--nocapture", "--include-ignored"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        prepare(&mut command);
        let mut process = command.spawn().expect("this program can be started again");
        let watchdog = Watchdog::over(process.id(), None);
        let reader = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                // The harness may have begun a line of its own before.
                if let Some((_, said)) = line.split_once(MARK)
                    && sender.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let stdin = process.stdin.take();
        Self { process, stdin, lines, seen: VecDeque::new(), _watchdog: watchdog }
    }

    /// Waits until the child says something that starts with `word`, and returns the rest of
    /// that line; what it said before is skipped.
    #[track_caller]
    pub fn expect(&mut self, word: &str) -> String {
        self.expect_within(Duration::from_secs(30), word)
    }

    /// The same for something that takes its time.
    #[track_caller]
    pub fn expect_within(&mut self, timeout: Duration, word: &str) -> String {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return rest.trim_start().to_owned();
                    }
                    self.seen.push_back(line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no {word:?} from the child in {timeout:?}; it said {:?}", self.seen)
                }
                Err(RecvTimeoutError::Disconnected) => panic!(
                    "the child ended ({:?}) without {word:?}; it said {:?}",
                    self.process.wait(),
                    self.seen
                ),
            }
        }
    }

    /// What [`expect`](Self::expect) has skipped.
    pub fn heard(&self) -> &VecDeque<String> {
        &self.seen
    }

    /// Sends a line to the child's [`ChildIo::hear`].
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the child's stdin is open");
        // A child that is gone will be noticed by the next `expect`.
        let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Freezes it (`SIGSTOP`).
    pub fn freeze(&self) {
        stop_process(self.pid());
    }

    /// Ends [`freeze`](Self::freeze) (`SIGCONT`).
    pub fn thaw(&self) {
        continue_process(self.pid());
    }

    /// Asks it to end (`SIGTERM`).
    pub fn terminate(&self) {
        signal(self.pid(), rustix::process::Signal::TERM);
    }

    /// Kills it (`SIGKILL`) and waits until it is gone.
    pub fn kill9(&mut self) {
        kill_process(self.pid());
        let _ = self.process.wait();
    }

    /// Waits for its end, for at most 30 s.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.process.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the child does not end");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child's side: says lines to the parent and hears some.
#[derive(Debug)]
pub struct ChildIo(());

impl ChildIo {
    /// Says a line that the parent can [`expect`](Child::expect).
    pub fn say(&mut self, line: &str) {
        let mut out = stdout().lock();
        // The leading line break ends whatever the harness has begun to print.
        let _ = writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush());
    }

    /// Waits for a line from the parent; an empty one when the parent is gone.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        let _ = stdin().lock().read_line(&mut line);
        line.trim_end().to_owned()
    }
}

/// What a child does, from start to end.
pub type Role = fn(&mut ChildIo);

/// Plays the role that the parent asked for, and ends the process; returns at once in a process
/// that is no child of ours.
pub fn dispatch(roles: &[(&str, Role)]) {
    let Ok(wanted) = env::var(ROLE) else { return };
    let Some((_, play)) = roles.iter().find(|(name, _)| *name == wanted) else {
        panic!("no role is called {wanted}");
    };
    play(&mut ChildIo(()));
    std::process::exit(0);
}
