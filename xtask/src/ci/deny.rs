use anyhow::Result;

use crate::cargo::{cargo, must_succeed};
use crate::tools;

/// Checks licences, sources and versions of dependencies against `deny.toml`. Security advisories
/// are left out, because their list is downloaded and changes without a change here.
pub(super) fn check() -> Result<()> {
    tools::require("deny")?;
    must_succeed(cargo(&["deny", "check", "bans", "licenses", "sources"]))
}
