use std::fs;
use std::num::NonZero;
use std::process::Command;

use anyhow::Result;

use crate::cargo::{cargo, must_succeed, target_dir};
use crate::trials::Selection;
use crate::{tools, trials};

/// The servers that tests of versions run on.
const SERVERS: [&str; 7] = ["5.0", "6.0", "6.2", "here", "7.4", "8", "9"];

/// The programs of the short run: each area has one. The others take most of the time of a clean build.
const SHORT: [&str; 14] = [
    "--lib",
    "--bins",
    "--test",
    "attribute",
    "--test",
    "attribute_keys",
    "--test",
    "cli_run",
    "--test",
    "faults",
    "--test",
    "kinds",
    "--test",
    "locks",
];

/// What the short run leaves out of these programs, because it computes or waits for long.
const LONG: [&str; 16] = [
    "faults_that_are_put_back_are_found",
    "faults_that_are_put_in_are_found",
    "faults_of_a_quorum_are_found",
    "histories_made_for_planted_faults",
    "simulation::tests::explorer",
    "thousands_of_readers",
    "full_from_the_beginning",
    "min_hold_keeps_others_out",
    "every_version_is_used",
    "crowds::",
    "random_rounds::",
    // Settings of a test that also runs with the usual ones.
    "::by_transactions",
    "::short",
    "tenants::",
    "connection::",
    "linger_",
];

/// For how long the short run plays each sort of random histories.
const SHORT_HISTORIES: &str = "2";

/// How many sequences of commands the short run gives to scripts, transactions and the model.
const SHORT_CONFORMANCE: &str = "15";

/// Makes sure that servers are installed, then runs the tests of one program for each area, or every test
/// of the workspace. With filters, it looks for them in all tests.
pub(crate) fn run(all: bool, yes: bool, filters: &[String]) -> Result<()> {
    let by_nextest = tools::has("nextest");
    match all || !filters.is_empty() {
        true => run_by(by_nextest, yes, &[], filters),
        false => run_short(by_nextest, yes),
    }
}

fn run_short(by_nextest: bool, yes: bool) -> Result<()> {
    let server = trials::server(Selection::Users, yes)?;
    let mut tests = if by_nextest {
        let left_out = LONG.map(|name| format!("test(~{name})")).join(" | ");
        let mut tests = nextest(&SHORT);
        tests.args(trials::PACKAGES).args(["-E", &format!("not ({left_out})")]);
        tests
    } else {
        let mut tests = cargo(&["test", "--all-features"]);
        tests.args(trials::PACKAGES).args(SHORT).args([
            "--",
            "--test-threads",
            &at_once().to_string(),
        ]);
        tests.args(LONG.iter().flat_map(|name| ["--skip", name]));
        tests
    };
    tests.env("REDIS_LOCKS_SERVER", server).env("SIMULATE_SECONDS", SHORT_HISTORIES);
    tests.env("REDIS_LOCKS_CONFORMANCE_CASES", SHORT_CONFORMANCE);
    must_succeed(tests)?;
    eprintln!("one program for each area; `cargo xtask test --all` runs every test");
    Ok(())
}

/// All of them. Those that need a database fail where it is missing, and are not skipped.
pub(crate) fn all_with_databases() -> Result<()> {
    run_by(tools::has("nextest"), false, &[("TESTBED_DATABASES", "required")], &[])
}

/// All of them with plain `cargo test`, where the tests of one binary share a process.
pub(crate) fn plain() -> Result<()> {
    run_by(false, false, &[], &[])
}

/// The tests of faults, and those of locks without scripts: programs, and parts of the tests' names.
const OF_FAULTS: [(&str, &str); 3] =
    [("faults", "::"), ("locks", "without_scripts"), ("locks", "transactions")];

/// Of these, what depends on the version of a server most: transactions, and what a server refuses. It is
/// little enough for each change. One test starts all versions itself.
const OF_VERSIONS: &str = "binary(faults) & test(/^(acquire|release|renewal|waiting)::.*::by_transactions$/) \
     | binary(faults) & test(/^server_state::.*::usual$/) \
     | binary(locks) & test(/^(transactions|without_scripts)::/) & !test(every_version_is_used)";

/// The tests of faults, and those of locks without scripts, on each of these servers, or on all that can be
/// had.
pub(crate) fn on_servers(wanted: &[String]) -> Result<()> {
    run_on(wanted, tests_of_faults)
}

/// A part of them on the oldest server, on 6.2 and on the newest. Without nextest it is all of them.
pub(crate) fn versions() -> Result<()> {
    let wanted = ["5.0", "6.2", "9"].map(str::to_owned);
    run_on(&wanted, || match tools::has("nextest") {
        true => vec![nextest_of_faults(OF_VERSIONS)],
        false => tests_of_faults(),
    })
}

fn run_on(wanted: &[String], tests: impl Fn() -> Vec<Command>) -> Result<()> {
    let mut failures = Vec::new();
    for version in SERVERS {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == version) {
            continue;
        }
        eprintln!("== {version}");
        let server = match trials::version(version) {
            Ok(server) => server,
            Err(error) if !wanted.is_empty() => return Err(error),
            Err(_) => {
                eprintln!("== not run: the server {version} can't be had");
                continue;
            }
        };
        for mut tests in tests() {
            tests.env("REDIS_LOCKS_SERVER", &server);
            if let Err(error) = must_succeed(tests) {
                failures.push(format!("on {version}: {error}"));
            }
        }
    }
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn tests_of_faults() -> Vec<Command> {
    if tools::has("nextest") {
        let among = |(binary, name): (&str, &str)| format!("binary({binary}) & test(~{name})");
        return vec![nextest_of_faults(&OF_FAULTS.map(among).join(" | "))];
    }
    let run = |(binary, name)| {
        let mut run = cargo(&["test", "--package", "redis-locks", "--all-features"]);
        run.args(["--no-fail-fast", "--test", binary, name]);
        run
    };
    OF_FAULTS.map(run).into()
}

fn nextest_of_faults(filter: &str) -> Command {
    // The whole workspace, so that dependencies have the features that they were compiled with before.
    let mut run = nextest(&["--workspace", "--no-fail-fast"]);
    run.args(["--test", "faults", "--test", "locks", "-E", filter]);
    run
}

/// `cargo nextest run`, with as many tests at once as fit.
fn nextest(arguments: &[&str]) -> Command {
    let mut run = cargo(&["nextest", "run", "--all-features", "--no-tests=pass"]);
    run.args(["--test-threads", &at_once().to_string()]).args(arguments);
    run
}

/// Has another program write anything to the keys of a lock, for a chosen time in each setting, with checks
/// for overflow, which this profile has.
pub(crate) fn tenants(seconds: u64) -> Result<()> {
    let mut test =
        cargo(&["test", "--package", "redis-locks", "--all-features", "--test", "kinds"]);
    test.args(["tenants::", "--", "--nocapture"]).env("TENANT_SECONDS", seconds.to_string());
    // No other test runs beside it, so it needs no process of its own, and shows what it has measured.
    test.env("TESTBED_OWN_PROCESS", "1");
    must_succeed(test)
}

/// Compares scripts, transactions and the model over many more steps than each change does.
pub(crate) fn conformance() -> Result<()> {
    let mut tests = cargo(&["test", "--package", "redis-lock-core", "--all-features", "--lib"]);
    tests.arg("conformance::").env("REDIS_LOCKS_CONFORMANCE_CASES", "300");
    tests.env("REDIS_LOCKS_SERVER", trials::server(Selection::Workspace, false)?);
    must_succeed(tests)
}

/// The tests that take half a minute or more.
pub(crate) fn slow() -> Result<()> {
    let mut tests = cargo(&["test", "--package", "redis-locks", "--package", "redis-locks-tower"]);
    tests.args(["--all-features", "--no-fail-fast", "--test", "http", "--test", "kinds"]);
    tests.args(["--test", "observe_events", "--test", "topologies"]);
    tests.args(["--", "--ignored", "--nocapture"]);
    tests.env("REDIS_LOCKS_SERVER", trials::server(Selection::Workspace, false)?);
    must_succeed(tests)
}

fn run_by(by_nextest: bool, yes: bool, needs: &[(&str, &str)], filters: &[String]) -> Result<()> {
    let server = trials::server(Selection::Workspace, yes)?;
    if trials::version("9").is_err() {
        eprintln!("tests that need Valkey 9 are skipped: none was found or fetched");
    }

    let skipped = target_dir().join("skipped-tests.txt");
    let _ = fs::remove_file(&skipped);
    let mut tests = if by_nextest {
        nextest(&["--workspace"])
    } else {
        cargo(&["test", "--workspace", "--all-features", "--all-targets"])
    };
    // All failures are shown, not only the first.
    tests.arg("--no-fail-fast");
    tests.env("REDIS_LOCKS_SERVER", &server).env("TESTBED_SKIPPED", &skipped);
    tests.envs(needs.iter().copied()).args(filters);
    let tests = must_succeed(tests);
    if let Ok(lines) = fs::read_to_string(&skipped) {
        eprint!("{lines}");
    }

    let mut documentation = cargo(&["test", "--workspace", "--all-features", "--doc"]);
    documentation.arg("--no-fail-fast");
    documentation.env("REDIS_LOCKS_SERVER", &server).args(filters);
    let documented = must_succeed(documentation);
    tests.and(documented)
}

/// How many tests run at once. Most wait for a server, a lease or a time limit, so that a core has
/// room for several; what computes says so in `.config/nextest.toml`.
fn at_once() -> usize {
    4 * std::thread::available_parallelism().map_or(1, NonZero::get)
}
