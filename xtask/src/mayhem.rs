use anyhow::{Result, anyhow, bail};
use testbed::{Permission, find_or_install};

use crate::cargo::{cargo, must_succeed};
use crate::soak::Mix;

/// Runs the test with 500 waiters in ten processes, of which waiters and holders are killed, for a
/// chosen time instead of 20 seconds, and shows its figures.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (mut seconds, mut scripting) = ("120", Mix::Auto);
    for option in arguments.chunks(2) {
        match option {
            [name, value] if name == "--seconds" && value.parse::<u64>().is_ok() => seconds = value,
            [name, value] if name == "--scripting" => scripting = Mix::parse(value)?,
            other => bail!("`mayhem` takes `--seconds N` and `--scripting mixed`, not {other:?}"),
        }
    }
    let server = find_or_install(Permission::Ask).map_err(|advice| anyhow!(advice))?;
    // Not with nextest, which ends tests that take too long.
    let mut test = cargo(&["test", "--package", "redis-locks", "--test", "waiting", "mayhem"]);
    test.args(["--", "--nocapture", "--test-threads", "1"])
        .env("REDIS_LOCKS_SERVER", server.path())
        .env("WAITING_SECONDS", seconds)
        .env("WAITING_SCRIPTING", scripting.word());
    must_succeed(test)
}
