//! Results for programs: every value of every round; and how they are read again.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use testbed::Flavor;

use crate::growth::{Curve, Point};
use crate::peer::PeerId;
use crate::results::WorkResults;
use crate::sample::{Sample, Unit};
use crate::setting::Setting;
use crate::work;

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

/// What is read of a document.
#[derive(Deserialize)]
struct Stored {
    results: Vec<StoredResults>,
}

#[derive(Deserialize)]
struct StoredResults {
    work: String,
    server: String,
    /// JSON has no infinity: it is `null`.
    rounds: BTreeMap<String, BTreeMap<String, Vec<Option<f64>>>>,
    unable: BTreeMap<String, String>,
}

/// The results in a document, but for works and libraries that are gone.
pub(super) fn read(text: &str) -> Result<Vec<WorkResults>> {
    let stored: Stored = serde_json::from_str(text)?;
    Ok(stored.results.iter().filter_map(outcome).collect())
}

fn outcome(stored: &StoredResults) -> Option<WorkResults> {
    let work = work::ALL.iter().find(|work| work.id == stored.work)?;
    let flavors = [Flavor::Redis, Flavor::Valkey];
    let on = flavors.into_iter().find(|on| format!("{on:?}") == stored.server)?;
    let mut outcome = WorkResults::new(work, on);
    let of = |peer: &PeerId| stored.rounds.get(&peer.id());
    let lengths = stored.rounds.values().flat_map(BTreeMap::values).map(Vec::len);
    for at in 0..lengths.max().unwrap_or(0) {
        let sample = |values: &BTreeMap<String, Vec<Option<f64>>>| -> Sample {
            let value = |metric: &str| values.get(metric)?.get(at).copied();
            let each = work.metrics.iter();
            each.filter_map(|it| Some((it.id, value(it.id)?.unwrap_or(f64::INFINITY)))).collect()
        };
        let round = work.peers.iter().filter_map(|peer| Some((*peer, sample(of(peer)?)))).collect();
        outcome.add_round(round);
    }
    let unable = |peer: &PeerId| Some((*peer, stored.unable.get(&peer.id())?.clone()));
    outcome.unable = work.peers.iter().filter_map(unable).collect();
    Some(outcome)
}
