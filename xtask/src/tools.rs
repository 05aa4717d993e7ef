//! The tools that checks need beside a Rust toolchain.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, must_succeed};

/// Programs of cargo, each in the version that the checks were written for.
const PROGRAMS: [(&str, &str); 3] =
    [("nextest", "0.9.143"), ("deny", "0.20.2"), ("public-api", "0.52.0")];

/// The oldest compiler that is promised to work: `rust-version` of the workspace.
pub(crate) const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Programs that tests run where they are there, and the packages of Debian that have them.
const IN_TESTS: [(&str, &str); 2] = [("strace", "strace"), ("flock", "util-linux")];

/// Installs what is missing, and leaves what is there.
pub(crate) fn install() -> Result<()> {
    install_packages(&IN_TESTS)?;
    for toolchain in [OLDEST, "nightly"] {
        if installed(toolchain).is_none() {
            let mut add = Command::new("rustup");
            add.args(["toolchain", "add", toolchain, "--profile", "minimal", "--no-self-update"]);
            must_succeed(add)?;
        }
    }
    for (name, version) in PROGRAMS {
        if !has(name) {
            let mut install = cargo(&["install", "--locked", &format!("cargo-{name}@{version}")]);
            if name != "nextest" {
                // It runs once in CI, and optimising it takes longer than that.
                install.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0");
            }
            must_succeed(install)?;
        }
    }
    Ok(())
}

/// Installs the packages of Debian whose programs are missing, and fails where no package manager does it.
pub(crate) fn install_packages(needed: &[(&str, &str)]) -> Result<()> {
    let is_there = |program: &str| Command::new(program).arg("--help").output().is_ok();
    let missing = needed.iter().filter(|(program, _)| !is_there(program));
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let apt = |words: &[&str]| Command::new("apt-get").args(words).status();
    let names = packages.join(" and ");
    let advice = || format!("install {names}: no apt-get does it here");
    ensure!(apt(&["update", "-qq"]).with_context(advice)?.success(), advice());
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(&packages);
    ensure!(apt(&words)?.success(), advice());
    Ok(())
}

/// Fails if `cargo <name>` is missing.
pub(crate) fn require(name: &str) -> Result<()> {
    if !has(name) {
        bail!("cargo-{name} is missing; `cargo xtask tools` installs it");
    }
    Ok(())
}

/// The toolchain of this version, such as `1.88.0-x86_64-unknown-linux-gnu`.
pub(crate) fn toolchain(version: &str) -> Result<String> {
    installed(version)
        .with_context(|| format!("Rust {version} is missing; `cargo xtask tools` installs it"))
}

/// Cargo of another toolchain, by way of rustup: the cargo that runs us belongs to one only.
pub(crate) fn with_toolchain(toolchain: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, "cargo"]).current_dir(crate::cargo::root());
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Whether `cargo <name>` is installed.
pub(crate) fn has(name: &str) -> bool {
    let mut version = cargo(&[name, "--version"]);
    version.stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

fn installed(version: &str) -> Option<String> {
    let output = Command::new("rustup").args(["toolchain", "list"]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.lines().find_map(|line| {
        let name = line.split_whitespace().next()?;
        let rest = name.strip_prefix(version)?;
        rest.starts_with(['.', '-']).then(|| name.to_owned())
    })
}
