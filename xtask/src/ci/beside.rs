use std::fs::File;
use std::io::{self, Seek};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

/// A step that runs in a process of its own while others run here. What it prints is kept until it has ended, so
/// that lines of two steps never mix.
pub(super) struct Beside {
    step: &'static str,
    child: Child,
    printed: File,
}

impl Beside {
    pub(super) fn start(step: &'static str) -> Result<Self> {
        let printed = tempfile::tempfile().context("there is no file for what a step prints")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["ci", step]);
        command.stdout(printed.try_clone()?).stderr(printed.try_clone()?);
        let child = command.spawn().with_context(|| format!("{step} could not be started"))?;
        Ok(Self { step, child, printed })
    }

    /// Waits for its end and shows what it printed.
    pub(super) fn finish(mut self) -> Result<()> {
        let status = self.child.wait()?;
        self.printed.rewind()?;
        io::copy(&mut self.printed, &mut io::stderr())?;
        ensure!(status.success(), "{}, which ran beside others, failed", self.step);
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // One that has ended can't be killed, and is not missed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
