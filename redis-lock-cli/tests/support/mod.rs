//! What the tests share: they run the real program against a real server.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod scene;
pub(crate) mod terminal;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use redis_lock_core::Locks;
use rustix::process::Signal;
use serde_json::Value;
use testbed::{Program, Server};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The program, on this server.
pub(crate) fn command(server: &Server) -> Command {
    command_of(env!("CARGO_BIN_EXE_redis-lock"), server)
}

/// Another program that starts it, on this server.
pub(crate) fn command_of(program: &str, server: &Server) -> Command {
    let mut command = bare_command_of(program);
    command.env("REDIS_URL", server.url());
    command
}

/// The program, on no server.
pub(crate) fn bare_command() -> Command {
    bare_command_of(env!("CARGO_BIN_EXE_redis-lock"))
}

fn bare_command_of(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("REDIS_URL")
        .env_remove("REDIS_LOCKS_NAMESPACE")
        // A terminal from which the tests are run is none of its business.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn locks(server: &Server) -> Locks {
    Locks::builder().url(server.url()).label("tester").open().unwrap()
}

/// Runs it to its end.
pub(crate) fn run(server: &Server, arguments: &[&str]) -> Output {
    answering(server, arguments, "")
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The lines of its output, each an object.
pub(crate) fn objects(output: &[u8]) -> Vec<Value> {
    text(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// It, while it runs.
pub(crate) struct Running {
    pub(crate) program: Program,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut command = command(server);
        command.args(arguments);
        Self::spawn(command)
    }

    pub(crate) fn spawn(command: Command) -> Self {
        Self::from(Program::spawn(command))
    }

    pub(crate) fn from(mut program: Program) -> Self {
        let lines = BufReader::new(program.stdout().unwrap());
        Self { program, lines }
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Whether what it started has ended, collected or not.
    pub(crate) fn has_no_living_child(&self) -> bool {
        let pid = self.program.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.unwrap().split_whitespace().all(|child| {
            std::fs::read_to_string(format!("/proc/{child}/stat"))
                .map_or(true, |stat| stat.contains(") Z "))
        })
    }

    /// Its exit code, and all it said on its way.
    pub(crate) fn end(mut self) -> (i32, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).unwrap();
        self.program.stderr().unwrap().read_to_string(&mut err).unwrap();
        (self.program.wait().unwrap().code().unwrap_or(-1), out, err)
    }
}

/// Runs it with this on its standard input.
pub(crate) fn answering(server: &Server, arguments: &[&str], answer: &str) -> Output {
    let mut command = command(server);
    command.args(arguments);
    if !answer.is_empty() {
        command.stdin(Stdio::piped());
    }
    Program::spawn(command).output(answer)
}
