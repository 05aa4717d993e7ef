//! Runs the simulation of the engine for as long as one likes.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, must_succeed};
use crate::minutes::minutes;

/// How long one batch runs before it says how it went.
const BATCH: Duration = Duration::from_secs(60);

/// How many seeds lie between the beginnings of two batches: more than a batch can try.
const STRIDE: u64 = 10_000_000;

/// Of the ways and of what is looked for, the first that is chosen counts.
#[expect(clippy::struct_excessive_bools, reason = "a list of options")]
#[derive(Args)]
pub(crate) struct SimulateOptions {
    /// For how long; 1 by default, 60 over all small histories
    #[arg(long, value_parser = minutes)]
    minutes: Option<Duration>,
    /// Play this seed alone, and print its history where there is no quorum
    #[arg(long)]
    seed: Option<u64>,
    /// The seed of the first history
    #[arg(long, default_value_t = 1)]
    from_seed: u64,
    /// Plant this fault
    #[arg(long)]
    fault: Option<String>,
    /// On a server without scripts
    #[arg(long)]
    transactions: bool,
    /// On servers that are replaced, as sentinels say in some histories, and on replicas that are counted
    #[arg(long)]
    replaced: bool,
    /// On several nodes whose slots move and that leave and come back
    #[arg(long)]
    cluster: bool,
    /// Many holds are given away
    #[arg(long)]
    adopted: bool,
    /// Callers are tasks of runtimes, and those that read the answers are blocked, dropped, or end
    /// with their runtime
    #[arg(long)]
    readers: bool,
    /// The machines of processes stand still for a while, and their clocks with them
    #[arg(long)]
    still: bool,
    /// Calls with `queue` and `newest`
    #[arg(long)]
    second_calls: bool,
    /// Calls with `once` and `replay`
    #[arg(long)]
    successes: bool,
    /// Calls with `share`
    #[arg(long)]
    shared: bool,
    /// The engine above the nodes of a quorum
    #[arg(long, conflicts_with_all = ["planted", "exhaustive", "fault", "scenario"])]
    quorum: bool,
    /// All sorts of histories in turn, each for so many minutes
    #[arg(long)]
    all: bool,
    /// Look how soon each planted fault is found
    #[arg(long)]
    planted: bool,
    /// Walk over all small histories, instead of playing random ones
    #[arg(long)]
    exhaustive: bool,
    /// How many messages of a small history are late, lost, executed twice, or the last of their
    /// process
    #[arg(long, default_value_t = 1)]
    depth: u64,
    /// Walk over the small histories of this scenario alone, such as `linger`
    #[arg(long)]
    scenario: Option<String>,
}

/// Plays random histories, or walks over all small ones, by the tests of the engine.
pub(crate) fn run(options: &SimulateOptions) -> Result<()> {
    let chosen = [
        (options.transactions, WITHOUT_SCRIPTS),
        (options.replaced, REPLACED),
        (options.cluster, CLUSTER),
        (options.adopted, ADOPTED),
        (options.readers, READERS),
        (options.still, STILL),
        (options.second_calls, SECOND_CALLS),
        (options.successes, SUCCESSES),
        (options.shared, SHARED),
        (options.quorum, QUORUM),
    ];
    let first = chosen.iter().find(|(is_chosen, _)| *is_chosen);
    let ordinary = first.map_or(ORDINARY, |(_, name)| name);
    if let Some(seed) = options.seed {
        return test(options, ordinary, &[("SIMULATE_SEED", seed)]);
    }
    if options.exhaustive {
        let name = if options.planted { SMALL_PLANTED } else { SMALL };
        let seconds = options.minutes.map_or(3_600, |time| time.as_secs());
        let settings = [("SIMULATE_DEPTH", options.depth), ("SIMULATE_SECONDS", seconds)];
        return test(options, name, &settings);
    }
    if options.planted {
        let seconds = options.minutes.map_or(60, |time| time.as_secs());
        return test(options, PLANTED, &[("SIMULATE_PLANTED", seconds)]);
    }
    if options.all {
        let others = chosen.iter().map(|(_, name)| *name);
        return [ORDINARY].into_iter().chain(others).try_for_each(|name| play(options, name));
    }
    play(options, ordinary)
}

/// Plays random histories of one sort.
fn play(options: &SimulateOptions, name: &str) -> Result<()> {
    let limit = options.minutes.unwrap_or(Duration::from_secs(60));
    eprintln!("== {name}");
    let (started, mut from) = (Instant::now(), options.from_seed);
    while started.elapsed() < limit {
        let batch = (limit - started.elapsed()).min(BATCH).as_secs().max(1);
        test(options, name, &[("SIMULATE_SECONDS", batch), ("SIMULATE_FROM", from)])?;
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
const SECOND_CALLS: &str =
    "simulation::second_calls::histories_with_second_calls_keep_every_promise";
const SUCCESSES: &str =
    "simulation::successes::histories_in_which_success_is_remembered_keep_every_promise";
const SHARED: &str =
    "simulation::successes::histories_in_which_values_are_shared_keep_every_promise";
const QUORUM: &str = "simulation::quorum::tests::histories_above_a_quorum_keep_every_promise";
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
