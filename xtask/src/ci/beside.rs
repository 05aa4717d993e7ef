use std::fs::File;
use std::io::{self, Seek};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

/// Steps that run in a process of their own while others run here. What they print is kept until they
/// have ended, so that lines of two steps never mix.
pub(super) struct Beside {
    child: Child,
    printed: File,
}

impl Beside {
    pub(super) fn start(steps: &[&str]) -> Result<Self> {
        let printed = tempfile::tempfile().context("there is no file for what steps print")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("ci").args(steps);
        command.stdout(printed.try_clone()?).stderr(printed.try_clone()?);
        let child = command.spawn().with_context(|| format!("{steps:?} could not be started"))?;
        Ok(Self { child, printed })
    }

    /// Waits for their end and shows what they printed.
    pub(super) fn finish(mut self) -> Result<()> {
        let status = self.child.wait()?;
        self.printed.rewind()?;
        io::copy(&mut self.printed, &mut io::stderr())?;
        ensure!(status.success(), "a step that ran beside others failed");
        Ok(())
    }
}
