use anyhow::{Result, anyhow, bail};
use testbed::{Permission, find_or_install};

use crate::cargo::{cargo, must_succeed};

/// 500 waiters in ten processes, and somebody who kills waiters and holders: the test that takes 20
/// seconds otherwise, for as long as is wanted, with its figures shown.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let seconds = match arguments {
        [] => "120",
        [option, seconds] if option == "--seconds" && seconds.parse::<u64>().is_ok() => seconds,
        other => bail!("`mayhem` takes `--seconds N` and nothing else, not {other:?}"),
    };
    let server = find_or_install(Permission::System).map_err(|advice| anyhow!(advice))?;
    // Not by nextest, which ends what takes longer than a test should.
    let mut test = cargo(&["test", "--package", "redis-locks", "--test", "waiting", "mayhem"]);
    test.args(["--", "--nocapture", "--test-threads", "1"])
        .env("REDIS_LOCKS_SERVER", server.path())
        .env("WAITING_SECONDS", seconds);
    must_succeed(test)
}
