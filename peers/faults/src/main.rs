//! redis-locks and the other lock libraries, one workload under one set of faults.
//!
//! `cargo xtask verify` runs it; `docs/verify` is what it found.

mod board;
mod cell;
mod clock;
mod contender;
mod event;
mod fault;
mod figures;
mod install;
mod judge;
mod options;
mod report;
mod scene;
mod store;
mod worker;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow};

use contender::Contender;
use fault::Fault;
use figures::Figures;
use install::Installed;
use options::Options;

/// What came out of one library under one fault: figures for each round, or why there are none.
#[derive(Default)]
pub(crate) struct Outcome {
    rounds: Vec<Figures>,
    unable: Option<String>,
}

pub(crate) type Outcomes = BTreeMap<(Fault, Contender), Outcome>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == "worker"
    {
        return worker::work(rest);
    }
    let options = Options::read();
    let started = Instant::now();
    let installed = Installed::everything();
    let outcomes = run_all(&options, &installed);
    report::write(&options, &installed, &outcomes, started.elapsed())
}

/// Runs the cells beside each other, as many as the options say, each on servers of its own.
fn run_all(options: &Options, installed: &Installed) -> Outcomes {
    let mut cells = Vec::new();
    for round in 0..options.rounds {
        for &fault in &options.faults {
            cells.extend(options.contenders.iter().map(|contender| (round, fault, *contender)));
        }
    }
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Outcomes::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.beside {
            scope.spawn(|| {
                while let Some(&(round, fault, contender)) =
                    cells.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let ran = match installed.lacks(contender) {
                        Some(why) => Err(anyhow!("{why}")),
                        None => run(contender, fault, round, installed, options),
                    };
                    let shown = ran.as_ref().map_or_else(ToString::to_string, Figures::to_string);
                    eprintln!("round {round}, {}, {}: {shown}", fault.id(), contender.id());
                    let mut outcomes = outcomes.lock().unwrap_or_else(|it| it.into_inner());
                    let outcome = outcomes.entry((fault, contender)).or_default();
                    match ran {
                        Ok(figures) => outcome.rounds.push(figures),
                        Err(why) => outcome.unable = Some(format!("{why:#}")),
                    }
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(|it| it.into_inner())
}

/// One cell; the scenery says by a panic what it can't do.
fn run(
    contender: Contender,
    fault: Fault,
    round: usize,
    installed: &Installed,
    options: &Options,
) -> Result<Figures> {
    let cell = || cell::run(contender, fault, round, installed, options);
    catch_unwind(AssertUnwindSafe(cell)).unwrap_or_else(|_| Err(anyhow!("the scenery failed")))
}
