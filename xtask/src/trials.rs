//! The package `trials`: long trials on real servers, and the search for servers. It is a package of
//! its own, because it needs the library, the driver and Tokio, and checks of files do not.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::cargo::{cargo, must_succeed, target_dir};

/// The packages that users get. Cargo chooses the features of dependencies for the packages that are built
/// together.
pub(crate) const PACKAGES: [&str; 4] = [
    "--package=redis-lock-core",
    "--package=redis-lock-macros",
    "--package=redis-lock-cli",
    "--package=redis-locks",
];

/// What this package is built with. The same as the tests that run next, so that nothing is compiled twice.
#[derive(Clone, Copy)]
pub(crate) enum Selection {
    /// [`PACKAGES`]: the demo and the short tests.
    Users,
    /// Everything.
    Workspace,
}

/// Builds the package, then runs this command of it.
pub(crate) fn run(name: &str, rest: &[String]) -> Result<()> {
    run_with(Selection::Workspace, name, rest)
}

/// The first thing that somebody runs here, before the short tests.
pub(crate) fn demo(rest: &[String]) -> Result<()> {
    run_with(Selection::Users, "demo", rest)
}

fn run_with(selection: Selection, name: &str, rest: &[String]) -> Result<()> {
    let mut trial = built(selection)?;
    trial.arg(name).args(rest);
    must_succeed(trial)
}

/// The program of a server: the one that is installed, or one that is installed now.
pub(crate) fn server(selection: Selection, yes: bool) -> Result<PathBuf> {
    let mut find = built(selection)?;
    find.arg("find").args(yes.then_some("--yes"));
    found(find)
}

/// The program of a server of this version.
pub(crate) fn version(version: &str) -> Result<PathBuf> {
    let mut find = built(Selection::Workspace)?;
    find.args(["find", version]);
    found(find)
}

/// The program, built with the features that tests have. Features of the tests' own dependencies count
/// because an example needs them.
fn built(selection: Selection) -> Result<Command> {
    let mut build = cargo(&["build", "--all-features", "--bin", "trials"]);
    build.args(["--example", "plain_lock"]);
    match selection {
        Selection::Users => build.args(PACKAGES).arg("--package=trials"),
        Selection::Workspace => build.arg("--workspace"),
    };
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
