use anyhow::Result;

use crate::cargo::{cargo, has_command, must_succeed};

/// Checks licences, sources and versions of dependencies against `deny.toml`. Security advisories
/// are left out, because their list is downloaded and changes without a change here.
pub(super) fn check() -> Result<()> {
    if !has_command("deny") {
        eprintln!("not checked: cargo-deny is not installed");
        return Ok(());
    }
    must_succeed(cargo(&["deny", "check", "bans", "licenses", "sources"]))
}
