//! Tries what threads share in many orders of their steps.

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, must_succeed};

/// How many orders are tried for each primitive.
const SCHEDULES: usize = 100_000;

/// `[--schedules N]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let schedules = match arguments {
        [] => SCHEDULES,
        [name, count] if name == "--schedules" => {
            count.parse().with_context(|| format!("`{count}` is no number"))?
        }
        other => bail!("{other:?} is not `--schedules N`"),
    };
    let mut tests = cargo(&["test", "--locked", "--manifest-path", "tests/threads/Cargo.toml"]);
    tests.env("CARGO_TARGET_DIR", testbed::target_dir().join("threads"));
    tests.env("THREADS_SCHEDULES", schedules.to_string());
    tests.args(["--", "--nocapture", "--test-threads", "1"]);
    must_succeed(tests)
}
