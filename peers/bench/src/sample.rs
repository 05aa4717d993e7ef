//! The result of a measurement.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// The values of one round, by the name of their metric.
pub(crate) type Sample = BTreeMap<&'static str, f64>;

/// One thing that a work measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    Seconds,
    PerSecond,
    Count,
    /// A part of a whole, or of a core.
    Share,
    Bytes,
    Times,
}

impl Unit {
    /// A value as people read it.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value.abs() < 1e-3 => format!("{} us", digits(value * 1e6)),
            Self::Seconds if value.abs() < 1.0 => format!("{} ms", digits(value * 1e3)),
            Self::Seconds => format!("{} s", digits(value)),
            Self::PerSecond => format!("{}/s", amount(value)),
            Self::Count => amount(value),
            Self::Share => format!("{} %", digits(value * 100.0)),
            Self::Bytes if value.abs() < 1e6 => format!("{} KB", digits(value / 1e3)),
            Self::Bytes => format!("{} MB", digits(value / 1e6)),
            // The least served got nothing.
            Self::Times if value.is_infinite() => "∞ x".into(),
            Self::Times => format!("{} x", digits(value)),
        }
    }
}

fn amount(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{} M", digits(value / 1e6)),
        large if large >= 1e4 => format!("{} k", digits(value / 1e3)),
        _ => digits(value),
    }
}

/// Three digits, or all before the point.
fn digits(value: f64) -> String {
    match value.abs() {
        zero if zero < 1e-9 => "0".into(),
        small if small < 10.0 => trimmed(format!("{value:.2}")),
        middle if middle < 100.0 => trimmed(format!("{value:.1}")),
        _ => format!("{value:.0}"),
    }
}

fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The value that `part` of all are below.
pub(crate) fn quantile(times: &mut [Duration], part: f64) -> f64 {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    times.get(index).map_or(f64::NAN, Duration::as_secs_f64)
}

/// The middle of values from several rounds; nothing of none.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => sorted.get(middle).copied(),
        _ => Some(f64::midpoint(*sorted.get(middle - 1)?, *sorted.get(middle)?)),
    }
}
