//! The goals that the figures are compared with.

use crate::peer::PeerId;
use crate::sample::{Metric, Unit};

/// By how much the same program differs between two runs.
const NOISE: f64 = 0.1;

/// A bound for one metric of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub(crate) metric: &'static str,
    pub(crate) who: PeerId,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::enum_variant_names, reason = "a bound is at most or at least something")]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// At most so many times the least of these.
    AtMostTimes(f64, &'static [PeerId]),
    /// At least so many times the most of these.
    AtLeastTimes(f64, &'static [PeerId]),
}

impl Goal {
    pub(crate) const fn ours(metric: &'static str, bound: Bound) -> Self {
        Self { metric, who: PeerId::Ours, bound }
    }

    pub(crate) const fn lingering(metric: &'static str, bound: Bound) -> Self {
        Self { metric, who: PeerId::Lingering, bound }
    }
}

impl Bound {
    /// The value in the terms of the bound, given the values of other libraries from the same
    /// round; `None` when none of them has one.
    pub(crate) fn figure(self, value: f64, of: impl Fn(PeerId) -> Option<f64>) -> Option<f64> {
        match self {
            Self::AtMost(_) | Self::AtLeast(_) => Some(value),
            Self::AtMostTimes(_, peers) => {
                let least = peers.iter().filter_map(|&peer| of(peer)).min_by(f64::total_cmp)?;
                Some(value / least)
            }
            Self::AtLeastTimes(_, peers) => {
                let most = peers.iter().filter_map(|&peer| of(peer)).max_by(f64::total_cmp)?;
                Some(value / most)
            }
        }
    }

    /// Whether the figure is within the bound, or misses it by less than two runs differ.
    pub(crate) fn is_met_by(self, figure: f64) -> bool {
        match self {
            Self::AtMost(limit) | Self::AtMostTimes(limit, _) => figure <= limit * (1.0 + NOISE),
            Self::AtLeast(limit) | Self::AtLeastTimes(limit, _) => figure >= limit * (1.0 - NOISE),
        }
    }
}

impl Goal {
    fn unit(&self, metrics: &[Metric]) -> Unit {
        let metric = metrics.iter().find(|metric| metric.id == self.metric);
        metric.map_or(Unit::Count, |metric| metric.unit)
    }

    /// The goal in words.
    pub(crate) fn describe(&self, metrics: &[Metric]) -> String {
        let metric = metrics.iter().find(|metric| metric.id == self.metric);
        let title = metric.map_or(self.metric, |metric| metric.title);
        let whose = match self.who {
            PeerId::Lingering => ", linger",
            _ => "",
        };
        let bound = match self.bound {
            Bound::AtMost(limit) => format!("at most {}", self.unit(metrics).show(limit)),
            Bound::AtLeast(limit) => format!("at least {}", self.unit(metrics).show(limit)),
            Bound::AtMostTimes(limit, peers) => format!("at most {limit} x {}", best(peers)),
            Bound::AtLeastTimes(limit, peers) => format!("at least {limit} x {}", best(peers)),
        };
        format!("{title}{whose}: {bound}")
    }

    /// What was reached, in the terms of the goal.
    pub(crate) fn show(&self, metrics: &[Metric], figure: f64) -> String {
        match self.bound {
            Bound::AtMost(_) | Bound::AtLeast(_) => self.unit(metrics).show(figure),
            Bound::AtMostTimes(..) | Bound::AtLeastTimes(..) => Unit::Times.show(figure),
        }
    }
}

fn best(peers: &[PeerId]) -> String {
    let names: Vec<&str> = peers.iter().map(|peer| peer.name()).collect();
    match names.as_slice() {
        _ if peers == PeerId::BARE => "the bare driver".to_owned(),
        [one] => (*one).to_owned(),
        several => format!("the better of {}", several.join(" and ")),
    }
}
