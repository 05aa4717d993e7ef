//! The package `trials`: long trials on real servers, and the search for servers. It is a package of
//! its own, because it needs the library, the driver and Tokio, and checks of files do not.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::cargo::{cargo, must_succeed, target_dir};

/// Builds the package, then runs this command of it.
pub(crate) fn run(name: &str, rest: &[String]) -> Result<()> {
    let mut trial = built()?;
    trial.arg(name).args(rest);
    must_succeed(trial)
}

/// The program of a server: the one that is installed, or one that is installed now.
pub(crate) fn server(yes: bool) -> Result<PathBuf> {
    let mut find = built()?;
    find.arg("find").args(yes.then_some("--yes"));
    found(find)
}

/// The program of a server of this version.
pub(crate) fn version(version: &str) -> Result<PathBuf> {
    let mut find = built()?;
    find.args(["find", version]);
    found(find)
}

/// The program, built with the features that tests have, so that nothing is compiled twice. Features
/// of the tests' own dependencies count because an example needs them.
fn built() -> Result<Command> {
    let mut build = cargo(&["build", "--quiet", "--workspace", "--all-features"]);
    build.args(["--bin", "trials", "--example", "plain_lock"]);
    must_succeed(build)?;
    Ok(Command::new(target_dir().join("debug/trials")))
}

fn found(mut find: Command) -> Result<PathBuf> {
    let output = find.stderr(Stdio::inherit()).stdin(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("no server was found");
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}
