//! Calls that say what becomes of a second call, in many processes, watched from outside.

mod callers;
mod mixed;
mod newest;
mod queue;
mod steady;
mod worker;

pub(crate) use worker::{CallerTerms, work};

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trial {
    /// `queue = 1`: eight processes that call a thousand times a second each
    Queue,
    /// `newest`: processes that are stopped and killed, and an observer that counts bodies
    Newest,
    /// A hundred calls with `newest` a second: whether line, memory or connections grow
    Steady,
    /// Programs `redis-lock` of an older version beside this one
    Mixed,
}

#[derive(Args)]
pub(crate) struct SecondCallOptions {
    trial: Trial,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What faults come, and when
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program `redis-lock` of an older version, for `mixed`
    #[arg(long, value_name = "PROGRAM")]
    old: Option<PathBuf>,
}

pub(crate) fn run(options: &SecondCallOptions) -> Result<()> {
    let time = Duration::from_secs(options.seconds);
    match options.trial {
        Trial::Queue => queue::run(time),
        Trial::Newest => newest::run(time, options.seed),
        Trial::Steady => steady::run(time),
        Trial::Mixed => match &options.old {
            Some(old) => mixed::run(time, old),
            None => bail!("`--old` names the older program"),
        },
    }
}
