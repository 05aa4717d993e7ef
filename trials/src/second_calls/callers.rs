//! The processes that call.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::Trial;

/// One process that calls.
pub(super) struct Caller {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Caller {
    /// `socket` is where it tells of its bodies.
    pub(super) fn start(trial: Trial, url: &str, socket: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(env::current_exe().context("the path of this program")?);
        let trial = trial.to_possible_value().context("a trial has a name")?;
        command.args(["second-call-worker", trial.get_name(), "--url", url]);
        if let Some(socket) = socket {
            command.arg("--socket").arg(socket);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a process that calls")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let mut caller = Self { child, input, output };
        match &*caller.hear()? {
            "ready" => Ok(caller),
            other => bail!("a process said {other:?}"),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn tell(&mut self, word: &str) -> Result<()> {
        writeln!(self.input, "{word}").context("a process has ended")
    }

    pub(super) fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim_end() {
            "" => bail!("a process has ended, with {}", self.child.wait()?),
            line => Ok(line.to_owned()),
        }
    }

    /// The numbers that it says.
    pub(super) fn hear_numbers(&mut self) -> Result<Vec<u64>> {
        let line = self.hear()?;
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        numbers.with_context(|| format!("a process said {line:?}"))
    }

    /// Ends it at once. It can do nothing after this returns.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The memory that it uses, in KiB.
    pub(super) fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.context("no VmRSS")?.trim().parse().context("not a number")
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
