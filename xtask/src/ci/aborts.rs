use anyhow::Result;
use testbed::Server;

use crate::cargo::{cargo, must_succeed};

/// Runs a program in which any panic is the end: one that uses locks from all sorts of runtimes.
pub(super) fn check() -> Result<()> {
    let server = Server::start();
    let mut run = cargo(&["run", "--package", "aborts", "--config", "profile.dev.panic=\"abort\""]);
    run.env("CARGO_TARGET_DIR", testbed::target_dir().join("aborts"));
    run.args(["--", &server.url()]);
    must_succeed(run)?;
    server.assert_clean();
    Ok(())
}
