use std::{process::Command, time::Instant};

use anyhow::Result;
use testbed::target_dir;

use crate::{
    cargo::{cargo, must_succeed},
    test,
};

/// The oldest compiler that is promised to work: `rust-version` of the workspace.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Everything that has to pass before a change goes in; stops at the first failure.
pub(crate) fn run() -> Result<()> {
    step("formatting", || must_succeed(cargo(&["fmt", "--all", "--check"])))?;
    step("lints", || {
        let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--all-features"]);
        clippy.args(["--", "-D", "warnings"]);
        must_succeed(clippy)
    })?;
    step("documentation", || {
        let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        must_succeed(doc)
    })?;
    step("beside frameworks", frameworks)?;
    step("oldest compiler", oldest_compiler)?;
    step("tests", || test::run(&[]))
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    work()?;
    let seconds = start.elapsed().as_secs_f32();
    eprintln!("== {name}: passed in {seconds:.1} s");
    Ok(())
}

/// Compiles the attribute beside frameworks, and in a crate that forbids what can be forbidden. These
/// are packages of their own; nothing there may warn.
fn frameworks() -> Result<()> {
    for command in ["check", "clippy"] {
        let mut compile = cargo(&[command, "--workspace", "--all-targets", "--locked"]);
        compile.args(["--manifest-path", "tests/frameworks/Cargo.toml"]);
        compile.env("CARGO_TARGET_DIR", target_dir().join("frameworks"));
        if command == "clippy" {
            compile.args(["--", "-D", "warnings"]);
        }
        must_succeed(compile)?;
    }
    Ok(())
}

fn oldest_compiler() -> Result<()> {
    let Some(toolchain) = installed_toolchain(OLDEST) else {
        eprintln!("not checked: Rust {OLDEST} is not installed (`rustup toolchain add {OLDEST}`)");
        return Ok(());
    };
    // By way of rustup: the cargo that runs us belongs to one toolchain only.
    let mut check = Command::new("rustup");
    check
        .args(["run", &toolchain, "cargo", "check", "--workspace", "--all-targets"])
        .arg("--all-features")
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env("CARGO_TARGET_DIR", target_dir().join("oldest-compiler"));
    must_succeed(check)
}

/// The name under which rustup has this version, such as `1.88.0-x86_64-unknown-linux-gnu`.
fn installed_toolchain(version: &str) -> Option<String> {
    let output = Command::new("rustup").args(["toolchain", "list"]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.lines().find_map(|line| {
        let name = line.split_whitespace().next()?;
        let rest = name.strip_prefix(version)?;
        rest.starts_with(['.', '-']).then(|| name.to_owned())
    })
}
