mod compilers;
mod deny;
mod features;
mod minimal_versions;
mod packages;
mod public_api;

use std::time::Instant;

use anyhow::{Result, bail};

use crate::cargo::{cargo, must_succeed};
use crate::{cases, floors, test};
pub(crate) use public_api::run as public_api;

type Work = fn() -> Result<()>;

/// What has to pass, by name. What is quick and fails often comes first.
const STEPS: [(&str, Work); 10] = [
    ("formatting", || must_succeed(cargo(&["fmt", "--all", "--check"]))),
    ("floors", floors::run),
    ("cases", || cases::run(&[])),
    ("lints", lints),
    ("documentation", documentation),
    ("dependencies", deny::check),
    ("oldest-compiler", compilers::oldest),
    ("features", features::check),
    ("tests", || test::run(&[])),
    ("frameworks", frameworks),
];

/// What builds other packages from nothing, which is more than a change can wait for: by name, or
/// all of it as `long`.
const LONG_STEPS: [(&str, Work); 4] = [
    ("public-api", || public_api(&[])),
    ("oldest-dependencies", minimal_versions::check),
    ("packages", packages::check),
    ("apps", apps),
];

/// Everything that has to pass before a change goes in, or the steps that are named; stops at the
/// first failure.
pub(crate) fn run(wanted: &[String]) -> Result<()> {
    let is_wanted = |wished: &str| wanted.iter().any(|wanted| wanted == wished);
    let all = STEPS.iter().chain(&LONG_STEPS);
    let known = |name: &String| name == "long" || all.clone().any(|(step, _)| step == name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names: Vec<_> = all.map(|(name, _)| *name).collect();
        bail!("there is no step `{unknown}`; there are {} and long", names.join(", "));
    }
    for (name, work) in STEPS {
        if wanted.is_empty() || is_wanted(name) {
            step(name, work)?;
        }
    }
    for (name, work) in LONG_STEPS {
        if is_wanted("long") || is_wanted(name) {
            step(name, work)?;
        }
    }
    Ok(())
}

fn lints() -> Result<()> {
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--all-features"]);
    clippy.args(["--", "-D", "warnings"]);
    must_succeed(clippy)
}

fn documentation() -> Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    must_succeed(doc)
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
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--locked"]);
    clippy.args(["--manifest-path", "tests/frameworks/Cargo.toml"]);
    clippy.env("CARGO_TARGET_DIR", testbed::target_dir().join("frameworks"));
    // Clippy says what the compiler says, and more.
    clippy.args(["--", "-D", "warnings"]);
    must_succeed(clippy)
}

/// The larger examples, each a program with its own dependencies and tests.
fn apps() -> Result<()> {
    let mut test = cargo(&["test", "--manifest-path", "examples/apps/Cargo.toml", "--locked"]);
    test.env("CARGO_TARGET_DIR", testbed::target_dir().join("apps"));
    must_succeed(test)
}
