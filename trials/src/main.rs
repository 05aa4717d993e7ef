//! Long trials of the library on real servers. `cargo xtask` starts them.

mod demo;
mod find;
mod mayhem;
mod memory;
mod minutes;
mod outages;
mod second_calls;
mod server_choice;
mod servers;
mod soak;

use std::env;
use std::path::Path;
use std::process::{Command as Program, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use find::FindOptions;
use outages::OutageOptions;
use second_calls::{CallerTerms, SecondCallOptions};
use soak::{Mix, SoakOptions, WorkerTerms};

/// Long trials of the library on real servers
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Processes share a counter, without and with the lock
    Demo {
        /// Install a package of the system without asking, if there is no server
        #[arg(long)]
        yes: bool,
        /// Write a recording of it, an animated SVG
        #[arg(long, value_name = "FILE")]
        record: Option<std::path::PathBuf>,
    },
    /// A process of the demo
    #[command(hide = true)]
    DemoWorker(demo::WorkerOptions),
    /// Random faults on real servers, with a check of the history
    Soak(SoakOptions),
    /// A process of the soak
    #[command(hide = true)]
    SoakWorker(WorkerTerms),
    /// 500 waiters in ten processes that are killed at random
    Mayhem {
        #[arg(long, default_value_t = 120)]
        seconds: u64,
        /// Which processes do without scripts
        #[arg(long, value_enum, default_value_t = Mix::Auto)]
        scripting: Mix,
    },
    /// Whether contended keys leave the memory of a process as it is
    Memory {
        #[arg(long, default_value_t = 600)]
        seconds: u64,
    },
    /// What locks on a cluster of 3 + 3 cost while slots move, and while primaries are killed
    Outages(OutageOptions),
    /// Calls with `queue` and `newest` in many processes, watched from outside
    SecondCalls(SecondCallOptions),
    /// A process of these
    #[command(hide = true)]
    SecondCallWorker(CallerTerms),
    /// Every public call on each server that can be had, in each setting, against docs/PROTOCOL.md
    Servers {
        /// Write the table of the document
        #[arg(long)]
        write: bool,
        /// Only these servers: 5.0, 6.0, 6.2, here, 7.4, 8, 9
        versions: Vec<String>,
    },
    /// Find or install a server, and print where its program is
    Find(FindOptions),
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
        Command::Demo { yes, record } => demo::run(yes, record.as_deref()),
        Command::DemoWorker(options) => demo::work(&options),
        Command::Soak(options) => soak::run(options),
        Command::SoakWorker(terms) => soak::work(&terms),
        Command::Mayhem { seconds, scripting } => mayhem::run(seconds, scripting),
        Command::Memory { seconds } => memory::run(seconds),
        Command::Outages(options) => outages::run(&options),
        Command::SecondCalls(options) => second_calls::run(&options),
        Command::SecondCallWorker(terms) => second_calls::work(&terms),
        Command::Servers { write, versions } => servers::run(write, &versions),
        Command::Find(options) => find::run(&options),
    }
}

/// The root of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}

/// Runs `cargo test` with these arguments and this setting, on this server, and shows what it prints.
fn test(arguments: &[&str], server: &Path, setting: &[(&str, &str)]) -> Result<()> {
    let mut test = Program::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    test.current_dir(root()).arg("test").args(arguments).env("REDIS_LOCKS_SERVER", server);
    let status = test.envs(setting.iter().copied()).status().context("cargo could not start")?;
    if !status.success() {
        bail!("{test:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_whole() {
        Arguments::command().debug_assert();
    }
}
