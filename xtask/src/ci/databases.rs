use anyhow::Result;

use crate::cargo::{cargo, must_succeed};
use crate::tools;

/// The programs that the tests of statements need, and the packages of Debian that have them.
const NEEDED: [(&str, &str); 3] =
    [("psql", "postgresql"), ("mariadb-install-db", "mariadb-server"), ("python3", "python3")];

/// Runs the statements of docs/TRANSACTIONS.md on real databases. Installs those that are missing where a package
/// manager can, and fails where they are missing all the same.
pub(super) fn check() -> Result<()> {
    tools::install_packages(&NEEDED)?;
    let mut test =
        cargo(&["test", "--package", "redis-locks", "--all-features", "--test", "locks"]);
    test.args(["databases::"]).env("TESTBED_DATABASES", "required");
    must_succeed(test)
}
