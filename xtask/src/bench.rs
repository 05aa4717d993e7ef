use std::env;

use anyhow::{Context, Result};

use crate::cargo::{cargo, must_succeed, target_dir};
use crate::trials::{self, Selection};

/// The other lock crates and their drivers are no dependencies of ours: they have a package of
/// their own.
const PEERS: &str = "peers/bench/Cargo.toml";

const OUT: &str = "docs/bench";

/// Finds or fetches servers, then measures all libraries side by side. A full run writes
/// `docs/bench`; a quick one, or one of a few works, only shows what it found.
pub(crate) fn run(rest: &[String]) -> Result<()> {
    let server = trials::server(Selection::Workspace, false)?;
    // Everything that takes long to fetch is fetched before anything is measured.
    trials::version("9").context("figures are for Redis and Valkey")?;

    let mut build = cargo(&["build", "--release", "--manifest-path", PEERS]);
    share_target(&mut build);
    must_succeed(build)?;
    let mut measure = cargo(&["run", "--quiet", "--release", "--manifest-path", PEERS, "--"]);
    share_target(&mut measure);
    let command = ["cargo xtask bench".to_owned()].iter().chain(rest).cloned().collect::<Vec<_>>();
    measure.args(["--command", &command.join(" ")]);
    if rest.is_empty() {
        measure.args(["--out", OUT]);
    }
    measure.args(rest).env("REDIS_LOCKS_SERVER", server);
    must_succeed(measure)
}

/// Builds where the rest of the repository does, whatever the package's own root is.
fn share_target(command: &mut std::process::Command) {
    if env::var_os("CARGO_TARGET_DIR").is_none() {
        command.env("CARGO_TARGET_DIR", target_dir());
    }
}
