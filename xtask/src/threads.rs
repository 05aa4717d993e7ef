//! Tries what threads share in many orders of their steps.

use anyhow::Result;

use crate::cargo::{cargo, must_succeed, target_dir};

/// Tries so many orders for each primitive.
pub(crate) fn run(schedules: u64) -> Result<()> {
    let mut tests = cargo(&["test", "--locked", "--manifest-path", "tests/threads/Cargo.toml"]);
    tests.env("CARGO_TARGET_DIR", target_dir().join("threads"));
    tests.env("THREADS_SCHEDULES", schedules.to_string());
    tests.args(["--", "--nocapture", "--test-threads", "1"]);
    must_succeed(tests)
}
