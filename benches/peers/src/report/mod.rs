//! What is told of the results, and in which form.

use std::path::Path;

use anyhow::Result;
use testbed::ServerBinary;

use crate::results::Outcome;

pub(crate) mod table;

/// Writes everything that `docs/bench` holds.
pub(crate) fn write(
    dir: &Path,
    outcomes: &[Outcome],
    servers: &[ServerBinary],
    quick: bool,
) -> Result<()> {
    let _ = (dir, outcomes, servers, quick);
    Ok(())
}
