use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, must_succeed};

/// The programs that the tests of statements need, and the packages of Debian that have them.
const NEEDED: [(&str, &str); 3] =
    [("psql", "postgresql"), ("mariadb-install-db", "mariadb-server"), ("python3", "python3")];

/// Runs the statements of docs/TRANSACTIONS.md on real databases. Installs those that are missing where a package
/// manager can, and fails where they are missing all the same.
pub(super) fn check() -> Result<()> {
    let packages = NEEDED.iter().filter(|(program, _)| !is_there(program)).map(|(_, it)| *it);
    let packages: Vec<&str> = packages.collect();
    if !packages.is_empty() {
        let apt = |words: &[&str]| Command::new("apt-get").args(words).status();
        let names = packages.join(" and ");
        let advice = || format!("install {names}: no apt-get does it here");
        ensure!(apt(&["update", "-qq"]).with_context(advice)?.success(), advice());
        let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
        words.extend(&packages);
        ensure!(apt(&words)?.success(), advice());
    }
    let mut test =
        cargo(&["test", "--package", "redis-locks", "--all-features", "--test", "locks"]);
    test.args(["databases::"]).env("TESTBED_DATABASES", "required");
    must_succeed(test)
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--help").output().is_ok()
}
