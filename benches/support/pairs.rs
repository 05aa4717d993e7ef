//! Taking and giving back a lock, again and again.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::figures::median;

pub const ROUNDS: usize = 15;

const ROUND: Duration = Duration::from_millis(150);

/// A manager that is used much has its answers read by the tasks that wait for them. That has to
/// begin before the measurement.
const WARM_UP: usize = 600;

/// Something that takes and gives back a lock: a library, or the bare driver.
pub trait Pair: Send + 'static {
    fn pair(&mut self) -> impl Future<Output = Result<()>> + Send;
}

pub async fn warm_up(mut subject: impl Pair) -> Result<()> {
    for _ in 0..WARM_UP {
        subject.pair().await?;
    }
    Ok(())
}

/// The median time of a pair in one round, in seconds.
pub async fn median_pair(mut subject: impl Pair) -> Result<f64> {
    let (mut times, start) = (Vec::new(), Instant::now());
    while start.elapsed() < ROUND {
        let before = Instant::now();
        subject.pair().await?;
        times.push(before.elapsed().as_secs_f64());
    }
    Ok(median(times))
}
