mod aborts;
mod beside;
mod deny;
mod features;
mod minimal_versions;
mod packages;
mod public_api;

pub(crate) use public_api::run as public_api;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::beside::Beside;
use crate::cargo::{cargo, must_succeed, target_dir};
use crate::{cases, floors, links, shape, test, threads, tools, trials};

/// The programs that the tests of SQL statements need, and the packages of Debian that have them.
const DATABASES: [(&str, &str); 3] =
    [("psql", "postgresql"), ("mariadb-install-db", "mariadb-server"), ("python3", "python3")];

type Work = fn() -> Result<()>;
type Step = (&'static str, Work);

/// The checks, by name. Quick ones, and those that fail often, come first.
const STEPS: [Step; 14] = [
    ("formatting", || must_succeed(cargo(&["fmt", "--all", "--check"]))),
    ("floors", floors::run),
    ("shape", shape::run),
    ("links", links::run),
    ("cases", || cases::run(false)),
    ("lints", lints),
    ("documentation", documentation),
    ("dependencies", deny::check),
    ("features", features::check),
    ("public-api", || public_api(false)),
    ("tests", tests),
    ("packages", packages::check),
    ("servers", || trials::run("servers", &["5.0", "6.2", "9"].map(str::to_owned))),
    ("versions", test::versions),
];

/// Of these, what runs beside the others of its part: while one large package is compiled, and while tests
/// wait for servers and leases, a second core has little to do.
const BESIDE: [&str; 3] = ["features", "public-api", "servers"];

/// A part of its own, with nothing beside it: what measures time here would measure the others.
const ALONE: &str = "tests";

/// Checks that build other packages from nothing, which takes too long for every change. They run
/// by name, or all of them as `long`.
const LONG_STEPS: [Step; 11] = [
    ("aborts", aborts::check),
    ("feature-sets", features::sets),
    ("conformance", test::conformance),
    ("frameworks", frameworks),
    ("threads", || threads::run(2_000)),
    ("oldest-dependencies", minimal_versions::check),
    ("apps", apps),
    ("peers", peers),
    ("plain-tests", test::plain),
    ("slow-tests", test::slow),
    ("all-versions", || test::on_servers(&[])),
];

/// Everything that has to pass before a change goes in, or the steps that are named; stops at the
/// first failure. Shows at its end how long each step took.
pub(crate) fn run(wanted: &[String]) -> Result<()> {
    let chosen = chosen(wanted)?;
    let mut taken = Vec::new();
    let result = parts(&chosen).try_for_each(|steps| part(steps, wanted.is_empty(), &mut taken));
    eprint!("{}", table(&taken));
    result
}

/// The steps before the one that is alone, this one, and those after it.
fn parts(steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    steps.chunk_by(|(before, _), (after, _)| ![*before, *after].contains(&ALONE))
}

/// Runs steps one after the other, and at the same time those that may run beside them.
fn part(steps: &[Step], has_beside: bool, taken: &mut Vec<(&'static str, Duration)>) -> Result<()> {
    let (beside, steps): (Vec<_>, Vec<_>) =
        steps.iter().copied().partition(|(name, _)| has_beside && BESIDE.contains(name));
    let names: Vec<_> = beside.into_iter().map(|(name, _)| name).collect();
    let beside = if names.is_empty() { None } else { Some(Beside::start(&names)?) };
    let result = steps.into_iter().try_for_each(|(name, work)| timed(name, work, taken));
    let rest = beside
        .map_or(Ok(()), |others| timed("the rest of what ran beside", || others.finish(), taken));
    result.and(rest)
}

/// Runs one step and notes how long it took.
fn timed(
    name: &'static str,
    work: impl FnOnce() -> Result<()>,
    taken: &mut Vec<(&'static str, Duration)>,
) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    let result = work().with_context(|| format!("the step `{name}` failed"));
    taken.push((name, start.elapsed()));
    result
}

/// The steps that these names mean, in their order.
fn chosen(wanted: &[String]) -> Result<Vec<Step>> {
    let is_wanted = |wished: &str| wanted.iter().any(|wanted| wanted == wished);
    let all = STEPS.iter().chain(&LONG_STEPS);
    let known = |name: &String| name == "long" || all.clone().any(|(step, _)| step == name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names: Vec<_> = all.map(|(name, _)| *name).collect();
        bail!("there is no step `{unknown}`; there are {} and long", names.join(", "));
    }
    let short = STEPS.into_iter().filter(|(name, _)| wanted.is_empty() || is_wanted(name));
    let long = LONG_STEPS.into_iter().filter(|(name, _)| is_wanted("long") || is_wanted(name));
    Ok(short.chain(long).collect())
}

/// How long each step took, and all of them.
fn table(taken: &[(&str, Duration)]) -> String {
    let all = ("all of it", taken.iter().map(|(_, time)| *time).sum());
    let lines = taken.iter().chain([&all]);
    lines.map(|(name, time)| format!("{name:<28}{:>8.1} s\n", time.as_secs_f32())).collect()
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

/// Every test. Those that need a database fail without it.
fn tests() -> Result<()> {
    tools::install_packages(&DATABASES)?;
    test::all_with_databases()
}

/// Compiles the attribute beside frameworks, and in a crate that forbids what can be forbidden. These
/// are packages of their own; nothing there may warn.
fn frameworks() -> Result<()> {
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--locked"]);
    clippy.args(["--manifest-path", "tests/frameworks/Cargo.toml"]);
    clippy.env("CARGO_TARGET_DIR", target_dir().join("frameworks"));
    // Clippy says what the compiler says, and more.
    clippy.args(["--", "-D", "warnings"]);
    must_succeed(clippy)
}

/// The larger examples, each a program with its own dependencies and tests.
fn apps() -> Result<()> {
    let mut test = cargo(&["test", "--manifest-path", "examples/apps/Cargo.toml", "--locked"]);
    test.env("CARGO_TARGET_DIR", target_dir().join("apps"));
    must_succeed(test)
}

/// Locks on the same nodes as another library, in a workspace of its own, since that brings a driver along.
fn peers() -> Result<()> {
    let mut test = cargo(&["test", "--manifest-path", "peers/bench/Cargo.toml", "--locked"]);
    test.args(["--test", "quorum"]);
    test.env("CARGO_TARGET_DIR", target_dir().join("peers"));
    must_succeed(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str]) -> Vec<&'static str> {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        chosen(&wanted).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(names(&[]), STEPS.map(|(name, _)| name));
        assert_eq!(names(&["apps", "shape"]), ["shape", "apps"]);
        assert_eq!(names(&["long"]), LONG_STEPS.map(|(name, _)| name));
        assert!(chosen(&["shap".to_owned()]).is_err());
    }

    #[test]
    fn nothing_runs_beside_the_tests() {
        let firsts: Vec<_> = parts(&STEPS).map(|part| (part[0].0, part.len() > 1)).collect();
        assert_eq!(firsts, [("formatting", true), ("tests", false), ("packages", true)]);
    }

    #[test]
    fn the_table_ends_with_the_sum() {
        let table = table(&[("one", Duration::from_secs(1)), ("two", Duration::from_millis(2500))]);
        let words: Vec<&str> = table.split_whitespace().collect();
        assert_eq!(words, ["one", "1.0", "s", "two", "2.5", "s", "all", "of", "it", "3.5", "s"]);
    }
}
