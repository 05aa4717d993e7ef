//! Finds servers for tests that other programs start.

use anyhow::{Context, Result, anyhow};
use clap::Args;
use testbed::{Permission, ServerBinary, find_or_install};

use crate::servers::SERVERS;

#[derive(Args)]
pub(crate) struct FindOptions {
    /// Install a package of the system without asking, if there is no server
    #[arg(long)]
    yes: bool,
    /// Find this version instead: 5.0, 6.0, 6.2, here, 7.4, 8, 9
    version: Option<String>,
}

/// Prints the path of the program on stdout, and what it is on stderr.
pub(crate) fn run(options: &FindOptions) -> Result<()> {
    let binary = found(options)?;
    eprintln!("{binary}");
    println!("{}", binary.path().display());
    Ok(())
}

fn found(options: &FindOptions) -> Result<ServerBinary> {
    if let Some(version) = &options.version {
        let known = SERVERS.iter().find(|(name, _)| name == version);
        let (_, find) = known.with_context(|| format!("no server is called {version}"))?;
        return find().with_context(|| format!("the server {version} can't be had"));
    }
    let permission = if options.yes { Permission::System } else { Permission::Ask };
    find_or_install(permission).map_err(|advice| anyhow!(advice))
}
