use anyhow::Result;

use crate::cargo::{cargo, must_succeed, target_dir};

/// Runs a program in which any panic is the end: one that uses locks from all sorts of runtimes.
pub(super) fn check() -> Result<()> {
    let mut run = cargo(&["run", "--package", "aborts", "--config", "profile.dev.panic=\"abort\""]);
    run.env("CARGO_TARGET_DIR", target_dir().join("aborts"));
    must_succeed(run)
}
