//! The commands of this repository, run as `cargo xtask <command>`.

mod bench;
mod build_time;
mod cargo;
mod cases;
mod ci;
mod demo;
mod floors;
mod links;
mod mayhem;
mod memory;
mod mutants;
mod outages;
mod server_choice;
mod servers;
mod shape;
mod simulate;
mod soak;
mod test;
mod threads;
mod tracked;
mod verify;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask <command>

  test [--yes] [filter …]      find or fetch a server, then run every test; `--yes` installs a
                               package of the system without asking where there is no server
  demo [--yes]                 processes share a counter, without and with the lock
  soak --minutes N [--seed S]  random faults on real servers, with a check of the history;
                               `--place single|cluster|sentinel|quorum` says where, with
                               `--server redis|valkey`;
                               `--scripting never|mixed` has all or half of the `--workers N` do
                               without scripts
  simulate --minutes N [--from-seed S], --seed S, --planted
                               the real engine in a simulated world
  simulate --exhaustive [--depth D] [--scenario S] [--planted]
                               all small histories in which at most D messages go wrong
  threads [--schedules N]      what threads share, in N orders of their steps for each primitive
  build-time                   what an annotated function costs a build, in time and code
  mayhem [--seconds N] [--scripting never|mixed]
                               500 waiters in ten processes that are killed at random
  memory [--seconds N]         whether contended keys leave the memory of a process as it is
  outages [--reshard S] [--kill S] [--server redis|valkey]
                               what locks on a cluster of 3 + 3 cost while its slots move for S
                               seconds, and while its primaries are killed
  servers [--write] [version …]
                               every public call on each server that can be had, in each setting;
                               compares, or writes, the table of docs/PROTOCOL.md
  test-on [version …]          the tests of faults and those without scripts on each of these servers,
                               or on all: 5.0, 6.0, 6.2, here, 7.4, 8, 9
  tenants [--seconds N]        another program writes anything to the keys of a lock, with scripts and
                               without, for N seconds each: whether it costs more than that lock
  mutants [file …]             which small changes of the parts without I/O no test sees, by
                               cargo-mutants; takes hours without a file
  verify [--rounds N] [--fault F] [--library L] [--beside N] [--out DIR]
                               one workload under one set of faults, against this library and eight
                               others; without options into docs/verify
  bench [--quick …]            all lock crates side by side; without options into docs/bench
  floors                       whether modules lie above one another without circles
  shape                        whether files and functions are short, and names of types single
  links                        whether documents point to what is there
  cases [--write]              whether tests/CASES.md fits the tests
  public-api [--write]         whether tests/public-api fits the libraries
  ci [step …]                  all that has to pass: checks of every sort, then the tests;
                               `long` for what builds other packages from nothing
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let Some((command, rest)) = arguments.split_first() else { bail!("no command\n\n{USAGE}") };
    match command.as_str() {
        "test" => test::run(rest),
        "demo" => demo::run(rest),
        // Started by the demo.
        "demo-worker" => demo::work(rest),
        "soak" => soak::run(rest),
        // Started by the soak test.
        "soak-worker" => soak::work(rest),
        "simulate" => simulate::run(rest),
        "threads" => threads::run(rest),
        "build-time" => build_time::run(),
        "mayhem" => mayhem::run(rest),
        "servers" => servers::run(rest),
        "test-on" => test::on_servers(rest),
        "tenants" => test::tenants(rest),
        "memory" => memory::run(rest),
        "outages" => outages::run(rest),
        "mutants" => mutants::run(rest),
        "verify" => verify::run(rest),
        "bench" => bench::run(rest),
        "floors" => floors::run(),
        "shape" => shape::run(),
        "links" => links::run(),
        "cases" => cases::run(rest),
        "public-api" => ci::public_api(rest),
        "ci" => ci::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => bail!("there is no command `{other}`\n\n{USAGE}"),
    }
}
