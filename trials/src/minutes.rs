use std::time::Duration;

use anyhow::{Context, Result};

/// More than anything runs; later moments can be computed.
const LIMIT: Duration = Duration::from_secs(6_000_000);

/// Reads a time in minutes.
pub(crate) fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse().context("not a number of minutes")?;
    let time = Duration::try_from_secs_f64(minutes * 60.0).ok();
    let fits = |time: &Duration| !time.is_zero() && *time < LIMIT;
    time.filter(fits).context("neither above zero nor below 100,000")
}
