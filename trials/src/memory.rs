use anyhow::{Result, anyhow};
use testbed::{Permission, find_or_install};

use crate::test;

const NAME: &str = "engine::rest_tests::the_memory_of_contended_keys_stays_as_it_is";

/// Runs the test that contends for 20 keys for a chosen time, and checks that the memory of the
/// process does not grow.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let server = find_or_install(Permission::Ask).map_err(|advice| anyhow!(advice))?;
    let arguments = ["--profile", "simulation", "--package", "redis-lock-core", "--lib", NAME];
    let arguments = [&arguments[..], &["--", "--exact", "--ignored", "--nocapture"]].concat();
    test(&arguments, server.path(), &[("MEMORY_SECONDS", &seconds.to_string())])
}
