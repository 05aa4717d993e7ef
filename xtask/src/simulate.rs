//! Runs the simulation of the engine for as long as one likes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, must_succeed};

/// How long one batch runs before it says how it went.
const BATCH: Duration = Duration::from_secs(60);

/// How many seeds lie between the beginnings of two batches: more than a batch can try.
const STRIDE: u64 = 10_000_000;

/// The options of the command.
#[derive(Default)]
struct SimulateOptions {
    minutes: Option<f64>,
    /// The history of this seed is printed.
    seed: Option<u64>,
    from_seed: Option<u64>,
    /// A fault to be planted.
    fault: Option<String>,
    /// Whether the server has no scripts.
    transactions: bool,
    /// Whether servers are replaced.
    replaced: bool,
    /// Whether there are several nodes, whose slots move.
    cluster: bool,
    /// Whether many holds are given away.
    adopted: bool,
    /// Whether callers are tasks, of which some read the answers.
    readers: bool,
    /// Whether the machines of processes stand still, with their clocks.
    still: bool,
    /// Whether to look how soon each planted fault is found.
    planted: bool,
    /// Whether to walk over all small histories, instead of playing random ones.
    exhaustive: bool,
    /// How many messages of a small history may deviate.
    depth: Option<u64>,
    /// The only scenario of small histories that is walked over.
    scenario: Option<String>,
}

/// `--minutes N [--from-seed S] [--fault F]`, `--seed S [--fault F]`, or `--planted [--minutes N]`; the
/// first two also with `--transactions`, on a server without scripts, with `--replaced`, on servers that
/// are replaced, as sentinels say in some histories, and on replicas that are counted, with
/// `--cluster`, on several nodes whose slots move and that leave and come back, with `--adopted`,
/// where many holds are given away, with `--readers`, where callers are tasks of runtimes, and those that
/// read the answers are blocked, dropped, or end with their runtime, or with `--still`, where the machines of
/// processes stand still for a while, and their clocks with them. `--exhaustive [--depth D] [--planted] [--minutes N]` walks over all small
/// histories in which at most D messages are late, lost, executed twice, or the last of their process, with
/// `--scenario S` over those of one scenario, such as `linger`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = read(arguments)?;
    let ordinary = match (options.transactions, options.replaced, options.cluster) {
        (true, ..) => WITHOUT_SCRIPTS,
        (_, true, _) => REPLACED,
        (.., true) => CLUSTER,
        _ if options.adopted => ADOPTED,
        _ if options.readers => READERS,
        _ if options.still => STILL,
        _ => ORDINARY,
    };
    if let Some(seed) = options.seed {
        return test(&options, ordinary, &[("SIMULATE_SEED", seed)]);
    }
    if options.exhaustive {
        let name = if options.planted { SMALL_PLANTED } else { SMALL };
        let seconds = options.minutes.map_or(3_600.0, |minutes| minutes * 60.0) as u64;
        let depth = options.depth.unwrap_or(1);
        return test(&options, name, &[("SIMULATE_DEPTH", depth), ("SIMULATE_SECONDS", seconds)]);
    }
    if options.planted {
        let seconds = options.minutes.map_or(60.0, |minutes| minutes * 60.0) as u64;
        return test(&options, PLANTED, &[("SIMULATE_PLANTED", seconds)]);
    }
    let limit = Duration::from_secs_f64(options.minutes.unwrap_or(1.0) * 60.0);
    let (started, mut from) = (Instant::now(), options.from_seed.unwrap_or(1));
    while started.elapsed() < limit {
        let batch = (limit - started.elapsed()).min(BATCH).as_secs().max(1);
        test(&options, ordinary, &[("SIMULATE_SECONDS", batch), ("SIMULATE_FROM", from)])?;
        eprintln!("{:.0} s of {:.0} s", started.elapsed().as_secs_f64(), limit.as_secs_f64());
        from += STRIDE;
    }
    Ok(())
}

const ORDINARY: &str = "simulation::tests::histories_of_fixed_seeds_keep_every_promise";
const WITHOUT_SCRIPTS: &str = "simulation::tests::histories_without_scripts_keep_every_promise";
const REPLACED: &str =
    "simulation::tests::f12_f14_histories_of_servers_that_are_replaced_keep_every_promise";
const CLUSTER: &str = "simulation::tests::g9_g11_histories_on_several_nodes_keep_every_promise";
const ADOPTED: &str =
    "simulation::tests::histories_in_which_holds_are_given_away_keep_every_promise";
const READERS: &str = "simulation::tests::histories_in_which_tasks_read_keep_every_promise";
const STILL: &str = "simulation::tests::histories_of_machines_that_stand_still_keep_every_promise";
const SMALL: &str = "simulation::tests::explorer::all_small_histories_keep_every_promise";
const SMALL_PLANTED: &str =
    "simulation::tests::explorer::planted_faults_are_found_by_few_deviations";
const PLANTED: &str = "simulation::tests::faults_that_are_put_back_are_found";

fn test(options: &SimulateOptions, name: &str, settings: &[(&str, u64)]) -> Result<()> {
    let mut tests = cargo(&["test", "--quiet", "--profile", "simulation"]);
    tests.args(["--package", "redis-lock-core", "--lib", name, "--", "--exact", "--nocapture"]);
    for (name, value) in settings {
        tests.env(name, value.to_string());
    }
    if let Some(scenario) = &options.scenario {
        tests.env("SIMULATE_SCENARIO", scenario);
    }
    if let Some(fault) = &options.fault {
        tests.env("SIMULATE_FAULT", fault);
    }
    must_succeed(tests)
}

fn read(arguments: &[String]) -> Result<SimulateOptions> {
    let mut options = SimulateOptions::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--exhaustive" {
            options.exhaustive = true;
            continue;
        }
        if argument == "--planted" {
            options.planted = true;
            continue;
        }
        if argument == "--transactions" {
            options.transactions = true;
            continue;
        }
        if argument == "--replaced" {
            options.replaced = true;
            continue;
        }
        if argument == "--cluster" {
            options.cluster = true;
            continue;
        }
        if argument == "--readers" {
            options.readers = true;
            continue;
        }
        if argument == "--still" {
            options.still = true;
            continue;
        }
        if argument == "--adopted" {
            options.adopted = true;
            continue;
        }
        let value = rest.next().with_context(|| format!("`{argument}` needs a value"))?;
        match argument.as_str() {
            "--minutes" => options.minutes = Some(value.parse()?),
            "--depth" => options.depth = Some(value.parse()?),
            "--seed" => options.seed = Some(value.parse()?),
            "--from-seed" => options.from_seed = Some(value.parse()?),
            "--scenario" => options.scenario = Some(value.clone()),
            "--fault" => options.fault = Some(value.clone()),
            other => bail!("there is no option `{other}`"),
        }
    }
    Ok(options)
}
