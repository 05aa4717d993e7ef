use anyhow::Result;

use super::packages::{Package, published};
use crate::cargo::{must_succeed, target_dir};
use crate::tools::{OLDEST, toolchain, with_toolchain};

/// Checks the published packages with the oldest compiler that they name. Their tests take twice as long to
/// check, and a program that depends on a package does not compile them.
pub(super) fn oldest() -> Result<()> {
    let mut check = with_toolchain(&toolchain(OLDEST)?);
    check.args(["check", "--all-features"]);
    for Package { name, .. } in published()? {
        check.args(["--package", &name]);
    }
    check.env("CARGO_TARGET_DIR", target_dir().join("oldest-compiler"));
    must_succeed(check)
}
