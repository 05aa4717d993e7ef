use std::env;

use anyhow::Result;

use crate::cargo::{cargo, must_succeed, target_dir};
use crate::trials::{self, Selection};

/// The other libraries are no dependencies of ours: they have a package of their own.
const VERIFY: &str = "peers/faults/Cargo.toml";

const OUT: &str = "docs/verify";

/// Runs the same workload under the same faults against this library and others. A full run writes
/// `docs/verify`; one of some rounds, faults or libraries only shows what it found, unless `--out` says
/// where to write it.
pub(crate) fn run(rest: &[String]) -> Result<()> {
    let server = trials::server(Selection::Workspace, false)?;
    let mut verify = cargo(&["run", "--quiet", "--manifest-path", VERIFY, "--"]);
    // Built where the rest of the repository is, whatever the package's own root is.
    if env::var_os("CARGO_TARGET_DIR").is_none() {
        verify.env("CARGO_TARGET_DIR", target_dir());
    }
    verify.args(rest).env("REDIS_LOCKS_SERVER", server);
    if rest.is_empty() {
        verify.args(["--out", OUT]);
    }
    must_succeed(verify)
}
