//! The commands of this repository, run as `cargo xtask <command>`.

mod bench;
mod build_time;
mod cargo;
mod cases;
mod ci;
mod floors;
mod links;
mod minutes;
mod mutants;
mod pictures;
mod shape;
mod simulate;
mod test;
mod threads;
mod tools;
mod tracked;
mod trials;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use simulate::SimulateOptions;

/// The commands of this repository
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find or fetch a server, then run the tests of each area that take seconds
    Test {
        /// Run every test, as CI does
        #[arg(long)]
        all: bool,
        /// Install a package of the system without asking, where there is no server
        #[arg(long)]
        yes: bool,
        /// Passed to the test runner
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filters: Vec<String>,
    },
    /// Processes share a counter, without and with the lock
    #[command(disable_help_flag = true)]
    Demo(PassedOn),
    /// Random faults on real servers, with a check of the history
    #[command(disable_help_flag = true)]
    Soak(PassedOn),
    /// The real engine in a simulated world
    Simulate(SimulateOptions),
    /// What threads share, in many orders of their steps
    Threads {
        /// How many orders are tried for each primitive
        #[arg(long, default_value_t = 100_000)]
        schedules: u64,
    },
    /// What an annotated function costs a build, in time and code
    BuildTime,
    /// 500 waiters in ten processes that are killed at random
    #[command(disable_help_flag = true)]
    Mayhem(PassedOn),
    /// Whether contended keys leave the memory of a process as it is
    #[command(disable_help_flag = true)]
    Memory(PassedOn),
    /// What locks on a cluster of 3 + 3 cost while slots move, and while primaries are killed
    #[command(disable_help_flag = true)]
    Outages(PassedOn),
    /// Calls with `queue` and `newest` in many processes, watched from outside
    #[command(disable_help_flag = true)]
    SecondCalls(PassedOn),
    /// Every public call on each server that can be had, in each setting, against docs/PROTOCOL.md
    #[command(disable_help_flag = true)]
    Servers(PassedOn),
    /// The tests of faults, and those without scripts, on each server that can be had
    TestOn {
        /// Only these servers: 5.0, 6.0, 6.2, here, 7.4, 8, 9
        versions: Vec<String>,
    },
    /// Another program writes anything to the keys of a lock: whether it costs more than that lock
    Tenants {
        /// For how long in each setting: with scripts, and without
        #[arg(long, default_value_t = 150)]
        seconds: u64,
    },
    /// Which small changes of the parts without I/O no test sees, by cargo-mutants
    Mutants {
        /// Files of redis-lock-core/src; without them it takes hours
        files: Vec<String>,
    },
    /// One workload under one set of faults, against this library and eight others
    #[command(disable_help_flag = true)]
    Verify(PassedOn),
    /// All lock crates side by side
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
    /// Whether modules lie above one another without circles
    Floors,
    /// Whether files and functions are short, and names of types single
    Shape,
    /// Whether documents point to what is there
    Links,
    /// Draw the pictures of docs/pictures that have data here
    Pictures,
    /// Whether tests/CASES.md fits the tests
    Cases {
        /// Mend the list
        #[arg(long)]
        write: bool,
    },
    /// Whether tests/public-api fits the libraries
    PublicApi {
        /// Write it down anew
        #[arg(long)]
        write: bool,
    },
    /// Install the tools that checks need
    Tools,
    /// All that has to pass: checks of every sort, then the tests
    Ci {
        /// Only these; `long` for those that build other packages from nothing
        steps: Vec<String>,
    },
}

/// What another program reads; `--help` shows it. A full run, without any of it, writes into docs.
#[derive(Args)]
struct PassedOn {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Test { all, yes, filters } => test::run(all, yes, &filters),
        Command::Demo(it) => trials::demo(&it.options),
        Command::Soak(it) => trials::run("soak", &it.options),
        Command::Mayhem(it) => trials::run("mayhem", &it.options),
        Command::Memory(it) => trials::run("memory", &it.options),
        Command::Outages(it) => trials::run("outages", &it.options),
        Command::SecondCalls(it) => trials::run("second-calls", &it.options),
        Command::Servers(it) => trials::run("servers", &it.options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Threads { schedules } => threads::run(schedules),
        Command::BuildTime => build_time::run(),
        Command::TestOn { versions } => test::on_servers(&versions),
        Command::Tenants { seconds } => test::tenants(seconds),
        Command::Mutants { files } => mutants::run(&files),
        Command::Verify(PassedOn { options }) => verify::run(&options),
        Command::Bench(PassedOn { options }) => bench::run(&options),
        Command::Floors => floors::run(),
        Command::Shape => shape::run(),
        Command::Links => links::run(),
        Command::Pictures => pictures::run(),
        Command::Cases { write } => cases::run(write),
        Command::PublicApi { write } => ci::public_api(write),
        Command::Tools => tools::install(),
        Command::Ci { steps } => ci::run(&steps),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_whole() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_other_programs_read_is_passed_on() {
        let read = |line: &str| Arguments::parse_from(line.split_whitespace()).command;
        let Command::Bench(PassedOn { options }) = read("xtask bench --works pair --quick") else {
            panic!("another command")
        };
        assert_eq!(options, ["--works", "pair", "--quick"]);
        let Command::Test { all: false, yes, filters } =
            read("xtask test --yes -E test(waiting) -- --nocapture")
        else {
            panic!("another command")
        };
        assert!(yes);
        assert_eq!(filters, ["-E", "test(waiting)", "--", "--nocapture"]);
    }
}
