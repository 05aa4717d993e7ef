//! The command line: what to measure.

use anyhow::{Result, bail};
use clap::Parser;
use testbed::Flavor;

/// All lock crates side by side
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
pub(crate) struct Arguments {
    /// A few short rounds: a first look, nothing to publish
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these works; `list` shows them
    #[arg(long, value_delimiter = ',')]
    pub(crate) works: Option<Vec<String>>,
    /// Only these libraries
    #[arg(long, value_delimiter = ',')]
    pub(crate) peers: Option<Vec<String>>,
    #[arg(long, value_delimiter = ',', value_parser = server, default_value = "redis,valkey")]
    pub(crate) servers: Vec<Flavor>,
    /// Instead of each work's own number of rounds
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// The folder for results.md, results.json and the plots
    #[arg(long)]
    pub(crate) out: Option<String>,
    /// Only draw the plots of the results.json in this folder
    #[arg(long)]
    pub(crate) draw: Option<String>,
    /// What the results say they were made with
    #[arg(long)]
    pub(crate) command: Option<String>,
}

/// The name that selects the measurements of growth on the command line, as if they were a work.
pub(crate) const GROWTH: &str = "growth";

impl Arguments {
    /// Whether growth is measured: in a full run, and when asked for.
    pub(crate) fn has_growth(&self) -> bool {
        let named = |names: &Vec<String>| names.iter().any(|name| name == GROWTH);
        self.works.as_ref().map_or_else(|| self.peers.is_none(), named)
    }
}

fn server(name: &str) -> Result<Flavor> {
    match name {
        "redis" => Ok(Flavor::Redis),
        "valkey" => Ok(Flavor::Valkey),
        _ => bail!("the servers are redis and valkey"),
    }
}
