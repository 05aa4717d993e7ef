//! Sentinels that say which of two nodes serves. Each learns of a fail-over in its own time, and some
//! name the old node long after the other one has taken its place, and after it knows that.

use super::nodes::Verdict;
use super::{World, WorldEvent};
use crate::domain::fault::{Fault, FaultClass};
use crate::simulation::clock::{self, MILLI};
use crate::simulation::plan::{HistoryPlan, NodesPlan};
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::random::{self, Random};
use crate::simulation::server::reads;
use crate::store::Command;
use crate::store::redis::{Address, NamedPrimary, SentinelReport};
use crate::store::wire::Map;

const COUNT: usize = 3;

/// Makes these random numbers differ from others of the same seed.
const OF_SENTINELS: u64 = 65;

/// How long after a fail-over a sentinel names the old node, in milliseconds.
const STALE: [u64; 6] = [0, 20, 100, 700, 2_000, 6_000];

/// What each sentinel says.
pub(super) struct SimulatedSentinels(Vec<SentinelReport>);

impl SimulatedSentinels {
    pub(super) fn new(plan: &HistoryPlan) -> Self {
        let count = if plan.has_sentinels() { COUNT } else { 0 };
        Self(vec![report(1, 0); count])
    }
}

fn report(epoch: u64, node: usize) -> SentinelReport {
    let primary = Address::new(format!("n{node}"), 1);
    SentinelReport { epoch, primary, others: Vec::new(), down_after: None }
}

impl HistoryPlan {
    /// Sentinels say which of two nodes serves, and have the other one serve now and then.
    pub(super) fn have_sentinels(&mut self) {
        let random = &mut Random::new(random::hash([self.seed, OF_SENTINELS, 0, 0]));
        let owners = vec![0; self.keys.len()];
        let ahead = vec![0; 2];
        let (only_moves, has_sentinels) = (false, true);
        self.nodes = Some(NodesPlan { count: 1, owners, ahead, only_moves, has_sentinels });
        for _ in 0..random.between(1, 3) {
            let at = random.below(self.calm_at * 2 / 3);
            let after = random.pick(&[None, Some(1_200), Some(1_900)]).map(|after| after * MILLI);
            let lasts = random.pick(&[300, 2_000, 3_000, 5_000]) * MILLI;
            let lasts = lasts.min(self.calm_at - at);
            self.troubles.push((at, PlannedTrouble::FailOver { shard: 0, after, lasts }));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
        self.set_clocks();
    }
}

impl World {
    /// What a node does with a command that it can't send to another one.
    pub(super) fn verdict_alone(&self, node: usize, command: &Command) -> Verdict {
        if self.nodes.serves(node) || reads(&command.verb) {
            return Verdict::Executes;
        }
        Verdict::Deposed(Fault::new(FaultClass::Refused, "READONLY"))
    }

    /// The sentinels learn of a fail-over, and tell those who listen.
    pub(super) fn tell_sentinels(&mut self) {
        let (now, epoch) = (clock::now(), self.nodes.epoch());
        for sentinel in 0..COUNT {
            let chance = self.chance(66, now, sentinel as u64) as usize;
            // The one that has them do it knows at once.
            let late = if epoch as usize % COUNT == sentinel { 0 } else { STALE[chance % 6] };
            self.at(now + late * MILLI, WorldEvent::Informed(sentinel));
        }
    }

    pub(super) fn inform(&mut self, sentinel: usize) {
        let (epoch, node) = (self.nodes.epoch(), self.nodes.primary(0));
        let is_news = self.sentinels.0[sentinel].epoch < epoch;
        self.sentinels.0[sentinel] = report(epoch, node);
        let mut books = self.books.borrow_mut();
        books.history.step(49, sentinel as u64);
        books.history.line(|_| format!("-- sentinel {sentinel} names n{node} in epoch {epoch}"));
        drop(books);
        for process in (0..self.processes.len()).filter(|_| is_news) {
            let chance = self.chance(67, clock::now(), (process * COUNT + sentinel) as u64);
            // Some messages are missed.
            if !chance.is_multiple_of(3) {
                self.after(self.plan.path.latency, WorldEvent::Switched(process));
            }
        }
    }

    pub(super) fn switched(&mut self, index: usize) {
        let process = &self.processes[index];
        if process.is_alive && !process.is_over {
            process.clock.enter();
            process.core.look_soon();
            self.drive_soon(index);
        }
    }

    /// The map that follows from the answers of some sentinels, by the rules of the directory.
    pub(super) fn ask_sentinels(&self, process: usize, chance: u64) -> Option<Map> {
        let is_calm = clock::now() >= self.plan.calm_at;
        let answers = |sentinel: usize| is_calm || chance >> (2 * sentinel) & 3 != 0;
        let all = self.sentinels.0.iter().enumerate();
        let reports = all.filter(|(at, _)| answers(*at)).map(|(_, report)| report.clone());
        let listed = &self.processes[process].listed;
        let named = NamedPrimary::of(reports.collect(), COUNT, listed).ok()?;
        let node = super::nodes::node_of(&named.address.name());
        // It is asked for its role.
        let is_primary = self.nodes.serves(node) && clock::now() >= self.frozen_until(node);
        is_primary.then(|| named.accept(listed))
    }
}
