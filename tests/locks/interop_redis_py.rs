//! The same mutex from Python: redis-py's own `Lock` on our key, both ways.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use testbed::{Server, eventually};

use crate::support::*;

/// Takes and gives back the lock, as each line of its input says.
const SCRIPT: &str = "
import sys, redis
lock = redis.Redis.from_url(sys.argv[1]).lock('lock:job', timeout=float(sys.argv[2]))
for line in sys.stdin:
    word = line.strip()
    try:
        if word == 'try':
            answer = lock.acquire(blocking=False)
        elif word == 'wait':
            answer = lock.acquire(blocking=True, blocking_timeout=10)
        elif word == 'release':
            answer = lock.release() is None
        elif word == 'owned':
            answer = lock.owned()
        else:
            answer = 'what?'
    except redis.exceptions.LockError as error:
        answer = type(error).__name__
    print(answer, flush=True)
";

struct Python {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Python {
    fn start(python: &Path, server: &Server, ttl: &str) -> Self {
        let mut process = Command::new(python)
            .args(["-c", SCRIPT, &server.url(), ttl])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let stdin = process.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Self { process, stdin, stdout }
    }

    fn ask(&mut self, word: &str) -> String {
        writeln!(self.stdin, "{word}").expect("python reads");
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("python answers");
        answer.trim().to_owned()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

macro_rules! python {
    () => {{
        let Some(python) = testbed::python_with_redis() else {
            testbed::skip!("needs Python 3 with redis-py, or pip to install it")
        };
        python
    }};
}

#[test]
fn each_excludes_the_other() {
    let python = python!();
    let server = Server::start();
    let locks = open(&server.url());
    let mut theirs = Python::start(&python, &server, "30");

    assert_eq!(theirs.ask("try"), "True");
    assert!(job(&locks).blocking_try_acquire().unwrap().is_none());
    let error = job(&locks).wait(ms(200)).blocking_acquire().unwrap_err();
    assert!(error.is_busy(), "{error}");
    assert_eq!(theirs.ask("release"), "True");

    let guard = job(&locks).wait(PATIENCE).blocking_acquire().unwrap();
    assert_eq!(theirs.ask("try"), "False");
    assert_eq!(theirs.ask("owned"), "False");
    guard.blocking_verify().unwrap();
    guard.blocking_release().unwrap();

    assert_eq!(theirs.ask("try"), "True");
    assert_eq!(theirs.ask("owned"), "True");
    assert_eq!(theirs.ask("release"), "True");
    server.assert_clean();
}

#[test]
fn each_waits_for_the_other() {
    let python = python!();
    let server = Server::start();
    let locks = open(&server.url());
    let mut theirs = Python::start(&python, &server, "30");

    // Their release sends no message, so our waiter looks by itself.
    assert_eq!(theirs.ask("try"), "True");
    let waiting = std::thread::spawn({
        let request = job(&locks).wait(PATIENCE);
        move || request.blocking_acquire().unwrap()
    });
    eventually(PATIENCE, "ours is queued", || server.exists(QUEUE));
    assert_eq!(theirs.ask("release"), "True");
    let start = Instant::now();
    let guard = waiting.join().unwrap();
    assert!(start.elapsed() < ms(3000), "{:?}", start.elapsed());

    // They wait for us.
    let monitor = server.monitor();
    writeln!(theirs.stdin, "wait").unwrap();
    eventually(PATIENCE, "theirs tries in vain", || monitor.count("\"NX\"") > 0);
    guard.blocking_release().unwrap();
    let mut answer = String::new();
    theirs.stdout.read_line(&mut answer).unwrap();
    assert_eq!(answer.trim(), "True");
    assert_eq!(theirs.ask("release"), "True");
    server.assert_clean();
}

#[test]
fn neither_releases_the_others() {
    let python = python!();
    let server = Server::start();
    let locks = open(&server.url());

    // Theirs expires; we take it; their release is refused.
    let mut theirs = Python::start(&python, &server, "0.3");
    assert_eq!(theirs.ask("try"), "True");
    let guard = job(&locks).wait(PATIENCE).blocking_acquire().unwrap();
    assert_eq!(theirs.ask("release"), "LockNotOwnedError");
    guard.blocking_verify().unwrap();
    guard.blocking_release().unwrap();

    // Ours expires; they take it; our release is refused.
    let mut theirs = Python::start(&python, &server, "30");
    let guard = locks.mutex(KEY).ttl(ms(300)).renew(false).blocking_acquire().unwrap();
    assert_eq!(theirs.ask("wait"), "True");
    assert!(guard.blocking_release().is_err_and(|error| error.is_lost()));
    assert_eq!(theirs.ask("owned"), "True");
    assert_eq!(theirs.ask("release"), "True");
    server.assert_clean();
}

#[test]
fn lg26_redis_py_gets_a_lease_that_lingers_when_it_ends() {
    const LINGER: Duration = ms(4_000);
    let python = python!();
    let server = Server::start();
    let locks = open(&server.url());
    let mut theirs = Python::start(&python, &server, "30");
    let since = Instant::now();
    let lingering = job(&locks).linger(LINGER);
    loop {
        lingering.clone().blocking_acquire().unwrap().blocking_release().unwrap();
        if server.exists(WIRE) {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "its lease does not stay");
    }
    let released = Instant::now();
    let answer = theirs.ask("try");
    assert!(released.elapsed() < LINGER, "the machine is too slow to tell");
    assert_eq!(answer, "False");
    assert_eq!(theirs.ask("wait"), "True");
    assert!(lingering.blocking_try_acquire().unwrap().is_none(), "theirs is not handed out");
    assert_eq!(theirs.ask("release"), "True");
    locks.blocking_shutdown();
    server.assert_clean();
}
