use anyhow::{Result, anyhow};
use testbed::{Permission, find_or_install};

use crate::cargo::{cargo, must_succeed};

/// Runs the test that contends for 20 keys for a chosen time, and checks that the memory of the
/// process does not grow.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let server = find_or_install(Permission::Ask).map_err(|advice| anyhow!(advice))?;
    let name = "engine::rest_tests::the_memory_of_contended_keys_stays_as_it_is";
    let mut test = cargo(&["test", "--profile", "simulation", "--package", "redis-lock-core"]);
    test.args(["--lib", name, "--", "--exact", "--ignored", "--nocapture"])
        .env("REDIS_LOCKS_SERVER", server.path())
        .env("MEMORY_SECONDS", seconds.to_string());
    must_succeed(test)
}
