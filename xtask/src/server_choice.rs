//! Which server a tool is to run on.

use anyhow::{Context, Result, anyhow, bail};
use testbed::{Permission, ServerBinary, find_or_install};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerChoice {
    /// Any server that is there.
    Any,
    Valkey9,
}

impl ServerChoice {
    pub(crate) fn parse(name: &str) -> Result<Self> {
        match name {
            "redis" => Ok(Self::Any),
            "valkey" => Ok(Self::Valkey9),
            other => bail!("there is no server {other}; there are redis and valkey"),
        }
    }

    pub(crate) fn binary(self) -> Result<ServerBinary> {
        match self {
            Self::Valkey9 => ServerBinary::valkey(9).context("there is no Valkey 9 here"),
            Self::Any => find_or_install(Permission::Ask).map_err(|advice| anyhow!(advice)),
        }
    }
}
