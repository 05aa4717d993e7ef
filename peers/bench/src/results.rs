//! All rounds of all libraries, and the results that follow from them.

use std::collections::BTreeMap;

use testbed::Flavor;

use crate::goal::Goal;
use crate::peer::PeerId;
use crate::sample::{Sample, median};
use crate::work::Work;

/// The results of one work on one server.
pub(crate) struct WorkResults {
    pub(crate) work: &'static Work,
    pub(crate) on: Flavor,
    rounds: Vec<BTreeMap<PeerId, Sample>>,
    /// Why there is nothing of a library.
    pub(crate) unable: BTreeMap<PeerId, String>,
}

impl WorkResults {
    pub(crate) fn new(work: &'static Work, on: Flavor) -> Self {
        Self { work, on, rounds: Vec::new(), unable: BTreeMap::new() }
    }

    pub(crate) fn add_round(&mut self, round: BTreeMap<PeerId, Sample>) {
        self.rounds.push(round);
    }

    /// The values of all rounds.
    pub(crate) fn values(&self, peer: PeerId, metric: &str) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| value(round, peer, metric)).collect()
    }

    /// Whether there is anything of a library.
    pub(crate) fn has(&self, peer: PeerId) -> bool {
        self.rounds.iter().any(|round| round.contains_key(&peer))
    }

    /// The middle of all rounds.
    pub(crate) fn figure(&self, peer: PeerId, metric: &str) -> Option<f64> {
        median(&self.values(peer, metric))
    }

    /// How a goal was reached: the median of the rounds. Rounds are compared within themselves,
    /// because the machine is not equally fast all the time.
    pub(crate) fn reached(&self, goal: &Goal) -> Option<f64> {
        let each = |round: &BTreeMap<PeerId, Sample>| {
            let own = value(round, goal.who, goal.metric)?;
            goal.bound.figure(own, |peer| value(round, peer, goal.metric))
        };
        median(&self.rounds.iter().filter_map(each).collect::<Vec<_>>())
    }

    /// The goals that count on this server.
    pub(crate) fn goals(&self) -> impl Iterator<Item = &'static Goal> {
        self.work.goals.iter()
    }
}

fn value(round: &BTreeMap<PeerId, Sample>, peer: PeerId, metric: &str) -> Option<f64> {
    round.get(&peer)?.get(metric).copied()
}
