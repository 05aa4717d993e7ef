mod compilers;
mod deny;
mod features;
mod minimal_versions;
mod packages;
mod public_api;

use std::time::Instant;

use anyhow::{Result, bail};

use crate::{
    cargo::{cargo, must_succeed},
    cases, floors, test,
};
pub(crate) use public_api::run as public_api;

type Work = fn() -> Result<()>;

/// What has to pass, by name. What is quick and fails often comes first.
const STEPS: [(&str, Work); 12] = [
    ("formatting", || must_succeed(cargo(&["fmt", "--all", "--check"]))),
    ("floors", floors::run),
    ("cases", || cases::run(&[])),
    ("lints", lints),
    ("documentation", documentation),
    ("dependencies", deny::check),
    ("features", features::check),
    ("public-api", || public_api(&[])),
    ("oldest-compiler", compilers::oldest),
    ("oldest-dependencies", minimal_versions::check),
    ("packages", packages::check),
    ("tests", || test::run(&[])),
];

/// Everything that has to pass before a change goes in, or the steps that are named; stops at the
/// first failure.
pub(crate) fn run(wanted: &[String]) -> Result<()> {
    let known = |name: &String| STEPS.iter().any(|(step, _)| step == name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names = STEPS.map(|(name, _)| name).join(", ");
        bail!("there is no step `{unknown}`; there are {names}");
    }
    for (name, work) in STEPS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
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
