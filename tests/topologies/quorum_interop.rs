//! The same mutex from redlock-py, on the same three nodes, both ways.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use redis_locks::{LockRequest, Locks};
use testbed::{Server, eventually};

use crate::arena::{PATIENCE, ms, take};
use crate::quorum::Nodes;

const NODES: usize = 3;

/// Takes and gives back the lock, as each line of its input says.
const SCRIPT: &str = "
import sys, redlock
manager = redlock.Redlock(sys.argv[1:], retry_count=1, retry_delay=0.01)
waiting = redlock.Redlock(sys.argv[1:], retry_count=1000, retry_delay=0.01)
held = None
for line in sys.stdin:
    word = line.strip()
    if word == 'try':
        held = manager.lock('lock:job', 30000)
    elif word == 'wait':
        held = waiting.lock('lock:job', 30000)
    elif word == 'release':
        manager.unlock(held)
    print(bool(held), flush=True)
";

struct Redlock {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Redlock {
    fn start(python: &Path, urls: &[String]) -> Self {
        let mut process = Command::new(python)
            .args(["-c", SCRIPT])
            .args(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let stdin = process.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Self { process, stdin, stdout }
    }

    /// Whether it has the lock after that.
    fn has_after(&mut self, word: &str) -> bool {
        self.tell(word);
        self.answers()
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.stdin, "{word}").expect("python reads");
    }

    fn answers(&mut self) -> bool {
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("python answers");
        match answer.trim() {
            "True" => true,
            "False" => false,
            other => panic!("python said {other:?}"),
        }
    }
}

impl Drop for Redlock {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Three nodes that vote at once, and both libraries on them.
struct Shared {
    servers: Vec<Server>,
    locks: Locks,
    theirs: Redlock,
}

impl Shared {
    fn start(python: &Path) -> Self {
        let servers: Vec<_> = (0..NODES).map(|_| Server::start()).collect();
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        let locks = Locks::builder().quorum(&urls).rejoin(Duration::ZERO).open().unwrap();
        take(locks.mutex("warm")).blocking_release().unwrap();
        Self { servers, locks, theirs: Redlock::start(python, &urls) }
    }

    fn job(&self) -> LockRequest {
        self.locks.mutex("job")
    }

    fn assert_clean(&self) {
        eventually(PATIENCE, "every node is clean", || {
            self.servers.iter().all(|server| server.keys().iter().all(|key| key.contains(":f")))
        });
    }
}

macro_rules! redlock {
    () => {{
        let Some(python) = testbed::python_with_redlock() else {
            testbed::skip!("needs Python 3 with redlock-py, or pip to install it")
        };
        Shared::start(&python)
    }};
}

#[test]
fn redlock_py_and_a_quorum_exclude_each_other() {
    let mut shared = redlock!();
    assert!(shared.theirs.has_after("try"));
    assert!(shared.job().blocking_try_acquire().unwrap().is_none());
    let error = shared.job().wait(ms(300)).blocking_acquire().map(drop).unwrap_err();
    assert!(error.is_busy(), "{error}");
    shared.theirs.has_after("release");

    let guard = take(shared.job());
    assert!(!shared.theirs.has_after("try"));
    guard.blocking_verify().unwrap();
    shared.servers[2].kill9();
    assert!(!shared.theirs.has_after("try"));
    guard.blocking_verify().unwrap();
    guard.blocking_release().unwrap();

    shared.servers[2].restart();
    assert!(shared.theirs.has_after("wait"));
    assert!(shared.job().blocking_try_acquire().unwrap().is_none());
    shared.theirs.has_after("release");
    take(shared.job()).blocking_release().unwrap();
    shared.assert_clean();
}

#[test]
fn redlock_py_and_a_quorum_wait_for_each_other() {
    let mut shared = redlock!();
    assert!(shared.theirs.has_after("try"));
    // Their release sends no message, so our waiter looks by itself.
    let waiting = thread::spawn({
        let request = shared.job().wait(PATIENCE);
        move || request.blocking_acquire().unwrap()
    });
    let is_queued = |server: &Server| server.exists("lock:{lock:job}:~q");
    eventually(PATIENCE, "ours is queued", || shared.servers.iter().all(is_queued));
    shared.theirs.has_after("release");
    let guard = waiting.join().unwrap();

    let monitor = shared.servers[0].monitor();
    shared.theirs.tell("wait");
    eventually(PATIENCE, "theirs tries in vain", || monitor.count("\"NX\"") > 0);
    guard.blocking_release().unwrap();
    assert!(shared.theirs.answers());
    assert!(shared.job().blocking_try_acquire().unwrap().is_none());
    shared.theirs.has_after("release");
    shared.assert_clean();
}

#[test]
fn a_mutex_is_the_key_that_other_implementations_of_redlock_know() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().namespace("").open().unwrap();
    // As any other implementation of the algorithm does it.
    let redlock = |value: &str| {
        let take = |server: &&Server| {
            let cmd = format!("SET k {value} NX PX 30000");
            server.run::<Option<String>>(&cmd).is_some()
        };
        nodes.servers.iter().filter(take).count()
    };
    let guard = take(locks.mutex("k"));
    eventually(PATIENCE, "all have it", || nodes.having("k") == 3);
    assert_eq!(redlock("foreign"), 0);
    guard.blocking_release().unwrap();
    eventually(PATIENCE, "it is released", || nodes.having("k") == 0);
    assert_eq!(redlock("foreign"), 3);
    let error = locks.mutex("k").no_wait().blocking_acquire().map(drop).unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("foreign"), "{error}");
    nodes.servers.iter().for_each(|server| server.run::<()>("DEL k"));
    take(locks.mutex("k")).blocking_release().unwrap();
    nodes.assert_clean();
}
