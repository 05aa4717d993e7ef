use anyhow::Result;

use crate::cargo::{must_succeed, target_dir};
use crate::tools::{OLDEST, toolchain, with_toolchain};

/// Checks everything with the oldest compiler.
pub(super) fn oldest() -> Result<()> {
    let mut check = with_toolchain(&toolchain(OLDEST)?);
    check
        .args(["check", "--workspace", "--all-targets", "--all-features"])
        .env("CARGO_TARGET_DIR", target_dir().join("oldest-compiler"));
    must_succeed(check)
}
