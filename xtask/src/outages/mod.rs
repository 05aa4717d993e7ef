//! Measures how long locks on a cluster are not granted while slots are moved and primaries are
//! killed.

mod book;
mod down;
mod elsewhere;
mod kills;
mod load;
mod reshard;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use testbed::Cluster;

use crate::server_choice::ServerChoice;
use load::Load;

struct OutageOptions {
    reshard: Duration,
    kill: Duration,
    server: ServerChoice,
}

/// Puts a cluster of 3 + 3 under load of every kind, has slots move to and fro, then kills
/// primaries, and prints what that cost.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = options(arguments)?;
    let binary = options.server.binary()?;
    println!("a cluster of 3 + 3 on {binary}");
    let cluster = Cluster::builder().binary(binary).start();
    let load = Load::start(&cluster)?;
    let mut found = Vec::new();
    if !options.reshard.is_zero() {
        found.extend(reshard::measure(&cluster, &load, options.reshard)?);
    }
    if !options.kill.is_zero() {
        found.extend(kills::measure(&cluster, &load, options.kill)?);
    }
    load.end()?;
    if found.is_empty() {
        return Ok(());
    }
    bail!("{}", found.join("\n"))
}

fn options(arguments: &[String]) -> Result<OutageOptions> {
    let mut options = OutageOptions {
        reshard: Duration::from_secs(30),
        kill: Duration::from_secs(120),
        server: ServerChoice::Any,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} wants a value"))?;
        let seconds = || value.parse().map(Duration::from_secs).context("a number of seconds");
        match word.as_str() {
            "--reshard" => options.reshard = seconds()?,
            "--kill" => options.kill = seconds()?,
            "--server" => options.server = ServerChoice::parse(value)?,
            other => bail!("unknown option {other}; there are --reshard, --kill and --server"),
        }
    }
    Ok(options)
}
