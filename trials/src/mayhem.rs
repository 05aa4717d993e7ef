use anyhow::{Result, anyhow};
use testbed::{Permission, find_or_install};

use crate::soak::Mix;
use crate::test;

/// Runs the test with 500 waiters in ten processes, of which waiters and holders are killed, for a
/// chosen time instead of 20 seconds, and shows its figures.
pub(crate) fn run(seconds: u64, scripting: Mix) -> Result<()> {
    let server = find_or_install(Permission::Ask).map_err(|advice| anyhow!(advice))?;
    // Not with nextest, which ends tests that take too long.
    let arguments =
        ["--package", "redis-locks", "--test", "waiting", "mayhem", "--", "--nocapture"];
    let seconds = seconds.to_string();
    let setting = [("WAITING_SECONDS", &*seconds), ("WAITING_SCRIPTING", scripting.word())];
    test(&arguments, server.path(), &setting)
}
