//! Which server a tool is to run on.

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use testbed::{Permission, ServerBinary, find_or_install};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerChoice {
    /// The server that is there
    Redis,
    /// Valkey 9
    Valkey,
}

impl ServerChoice {
    pub(crate) fn binary(self) -> Result<ServerBinary> {
        match self {
            Self::Valkey => ServerBinary::valkey(9).context("there is no Valkey 9 here"),
            Self::Redis => find_or_install(Permission::Ask).map_err(|advice| anyhow!(advice)),
        }
    }
}
