//! Figures, and whether they reach their goals.

use std::fs;

use anyhow::{Context, Result};

/// Prints a figure, and whether it is at most its goal.
pub fn tell(what: &str, figure: f64, goal: f64, unit: &str) {
    let verdict = if figure <= goal { "reached" } else { "MISSED" };
    println!("  {what:22} {figure:8.2}{unit}, goal at most {goal}{unit} {verdict}");
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The processor time that this process has used, in seconds.
pub fn processor_time() -> Result<f64> {
    let mut sum = 0.0;
    for thread in fs::read_dir("/proc/self/task").context("this bench needs /proc")? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanos: f64 = text.split(' ').next().context("an empty schedstat")?.parse()?;
        sum += nanos / 1e9;
    }
    Ok(sum)
}
