//! Results for programs: every value of every round.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use crate::growth::{Curve, Point};
use crate::results::WorkResults;
use crate::sample::Unit;
use crate::setting::Setting;

#[derive(Serialize)]
struct Document<'a> {
    setting: &'a Setting,
    results: Vec<Results>,
    growth: Vec<Growth>,
}

#[derive(Serialize)]
struct Results {
    work: &'static str,
    title: &'static str,
    server: String,
    units: BTreeMap<&'static str, Unit>,
    /// For each library and each metric, the value of each round.
    rounds: BTreeMap<String, BTreeMap<&'static str, Vec<f64>>>,
    unable: BTreeMap<String, String>,
    goals: Vec<Reached>,
}

#[derive(Serialize)]
struct Growth {
    axis: &'static str,
    title: &'static str,
    server: String,
    points: Vec<(usize, Point)>,
}

#[derive(Serialize)]
struct Reached {
    goal: String,
    figure: f64,
    reached: bool,
}

pub(super) fn render(
    outcomes: &[WorkResults],
    curves: &[Curve],
    setting: &Setting,
) -> Result<String> {
    let results = outcomes.iter().map(results).collect();
    let growth = curves.iter().map(growth).collect();
    Ok(serde_json::to_string_pretty(&Document { setting, results, growth })? + "\n")
}

fn growth(curve: &Curve) -> Growth {
    Growth {
        axis: curve.axis.id,
        title: curve.axis.title,
        server: format!("{:?}", curve.on),
        points: curve.points.clone(),
    }
}

fn results(outcome: &WorkResults) -> Results {
    let work = outcome.work;
    let values = |peer| {
        let metrics = work.metrics.iter();
        metrics.map(|metric| (metric.id, outcome.values(peer, metric.id))).collect()
    };
    let measured = work.peers.iter().filter(|&&peer| outcome.has(peer));
    Results {
        work: work.id,
        title: work.title,
        server: format!("{:?}", outcome.on),
        units: work.metrics.iter().map(|metric| (metric.id, metric.unit)).collect(),
        rounds: measured.map(|&peer| (peer.id(), values(peer))).collect(),
        unable: outcome.unable.iter().map(|(peer, why)| (peer.id(), why.clone())).collect(),
        goals: outcome
            .goals()
            .filter_map(|goal| {
                let figure = outcome.reached(goal)?;
                let reached = goal.bound.is_met_by(figure);
                Some(Reached { goal: goal.describe(work.metrics), figure, reached })
            })
            .collect(),
    }
}
