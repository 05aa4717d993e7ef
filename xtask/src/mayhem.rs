use anyhow::{Result, anyhow};
use testbed::{Permission, find_or_install};

use crate::cargo::{cargo, must_succeed};
use crate::soak::Mix;

/// Runs the test with 500 waiters in ten processes, of which waiters and holders are killed, for a
/// chosen time instead of 20 seconds, and shows its figures.
pub(crate) fn run(seconds: u64, scripting: Mix) -> Result<()> {
    let server = find_or_install(Permission::Ask).map_err(|advice| anyhow!(advice))?;
    // Not with nextest, which ends tests that take too long.
    let mut test = cargo(&["test", "--package", "redis-locks", "--test", "waiting", "mayhem"]);
    test.args(["--", "--nocapture", "--test-threads", "1"])
        .env("REDIS_LOCKS_SERVER", server.path())
        .env("WAITING_SECONDS", seconds.to_string())
        .env("WAITING_SCRIPTING", scripting.word());
    must_succeed(test)
}
