use std::process::{Command, Stdio};

use anyhow::Result;
use testbed::target_dir;

use crate::cargo::must_succeed;

/// The oldest compiler that is promised to work: `rust-version` of the workspace.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Checks everything with the oldest compiler, which is installed where rustup can do that.
pub(super) fn oldest() -> Result<()> {
    let Some(toolchain) = installed(OLDEST).or_else(|| install(OLDEST)) else {
        eprintln!("not checked: Rust {OLDEST} is not installed, and rustup could not add it");
        return Ok(());
    };
    let mut check = with_toolchain(&toolchain);
    check
        .args(["check", "--workspace", "--all-targets", "--all-features"])
        .env("CARGO_TARGET_DIR", target_dir().join("oldest-compiler"));
    must_succeed(check)
}

/// Cargo of another toolchain, by way of rustup: the cargo that runs us belongs to one only.
pub(super) fn with_toolchain(toolchain: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, "cargo"]).current_dir(crate::cargo::root());
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// The name under which rustup has this version, such as `1.88.0-x86_64-unknown-linux-gnu`.
pub(super) fn installed(version: &str) -> Option<String> {
    let output = Command::new("rustup").args(["toolchain", "list"]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.lines().find_map(|line| {
        let name = line.split_whitespace().next()?;
        let rest = name.strip_prefix(version)?;
        rest.starts_with(['.', '-']).then(|| name.to_owned())
    })
}

fn install(version: &str) -> Option<String> {
    let mut add = Command::new("rustup");
    add.args(["toolchain", "add", version, "--profile", "minimal", "--no-self-update"]);
    // A rustup that has no way out says so at once; cargo's own words are for what was asked.
    let added = add.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    if added { installed(version) } else { None }
}
