//! Measures how long locks on a cluster are not granted while slots are moved and primaries are
//! killed.

mod book;
mod down;
mod elsewhere;
mod kills;
mod load;
mod reshard;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use testbed::Cluster;

use crate::server_choice::ServerChoice;
use load::Load;

#[derive(Args)]
pub(crate) struct OutageOptions {
    /// For how many seconds slots move
    #[arg(long, default_value_t = 30)]
    reshard: u64,
    /// For how many seconds primaries are killed
    #[arg(long, default_value_t = 120)]
    kill: u64,
    #[arg(long, value_enum, default_value_t = ServerChoice::Redis)]
    server: ServerChoice,
}

/// Puts a cluster of 3 + 3 under load of every kind, has slots move to and fro, then kills
/// primaries, and prints what that cost.
pub(crate) fn run(options: &OutageOptions) -> Result<()> {
    let binary = options.server.binary()?;
    println!("a cluster of 3 + 3 on {binary}");
    let cluster = Cluster::builder().binary(binary).start();
    let load = Load::start(&cluster)?;
    let mut found = Vec::new();
    let (reshard, kill) = (Duration::from_secs(options.reshard), Duration::from_secs(options.kill));
    if !reshard.is_zero() {
        found.extend(reshard::measure(&cluster, &load, reshard)?);
    }
    if !kill.is_zero() {
        found.extend(kills::measure(&cluster, &load, kill)?);
    }
    load.end()?;
    if found.is_empty() {
        return Ok(());
    }
    bail!("{}", found.join("\n"))
}
