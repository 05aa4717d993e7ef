use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Cargo, in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// Runs it, showing all it says.
pub(crate) fn must_succeed(mut command: Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("{shown} could not be started"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// Whether `cargo <name>` is installed.
pub(crate) fn has_command(name: &str) -> bool {
    cargo(&[name, "--version"]).output().is_ok_and(|output| output.status.success())
}

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}
