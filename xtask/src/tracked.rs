use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::root;

/// The files that git tracks below the root and that fit one of these patterns, except removed
/// ones; all of them without a pattern.
pub(crate) fn files(patterns: &[&str]) -> Result<Vec<String>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--"]).args(patterns).current_dir(root());
    let output = list.output().context("git could not be started")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("file names are text")?;
    let names = names.split('\0').filter(|name| !name.is_empty() && root().join(name).exists());
    Ok(names.map(ToOwned::to_owned).collect())
}
