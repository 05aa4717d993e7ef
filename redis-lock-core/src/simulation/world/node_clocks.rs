//! Nodes with clocks of their own, one of which may jump.
//!
//! A slot that moves takes its keys along with the time that they have left, as `MIGRATE` does. The ends
//! that stand in values are those of the clock before. A replica has all as times of the primary's clock.

use super::World;
use crate::domain::names::slot;
use crate::simulation::clock::{self, MILLI, SECOND};
use crate::simulation::full_key;
use crate::simulation::plan::HistoryPlan;
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::random::{self, Random};
use crate::simulation::server_clock::Retold;

/// Makes these random numbers differ from others of the same seed.
const OF_CLOCKS: u64 = 132;

/// By how much clocks differ, in milliseconds.
const APART: [i64; 8] = [0, 0, 20, -20, 400, -400, 3_000, -3_000];

/// By how much they jump.
const JUMPS: [u64; 5] = [50, 300, 1_000, 4_000, 15_000];

impl HistoryPlan {
    /// Has the clocks of nodes differ, and jump where more goes wrong than that slots move.
    pub(super) fn set_clocks(&mut self) {
        let random = &mut Random::new(random::hash([self.seed, OF_CLOCKS, 0, 0]));
        let Some(nodes) = &mut self.nodes else { return };
        if random.percent(50) {
            nodes.ahead.fill_with(|| random.pick(&APART) * MILLI as i64);
        }
        let (count, is_quiet) = (nodes.ahead.len() as u64, self.troubles.is_empty());
        for _ in 0..if nodes.only_moves || is_quiet { 0 } else { random.below(3) } {
            let (at, node) = (random.below(self.calm_at), random.below(count) as usize);
            let (forward, by) = (random.percent(50), random.pick(&JUMPS) * MILLI);
            self.troubles.push((at, PlannedTrouble::NodeClock { node, forward, by }));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }

    /// By how much the clocks of nodes differ at first.
    pub(super) fn apart(&self) -> u64 {
        let ahead = || self.nodes.iter().flat_map(|nodes| nodes.ahead.iter().copied());
        ahead().max().unwrap_or(0).abs_diff(ahead().min().unwrap_or(0))
    }
}

impl World {
    /// The clock of one node is set forward or back.
    pub(super) fn node_jumps(&mut self, node: usize, forward: bool, by: u64) {
        let by = i64::try_from(by).unwrap_or(0);
        let by = if forward { by } else { -by };
        for key in self.full_keys() {
            let (slot, nodes) = (slot(&key), &self.nodes);
            let is_here = |part: &str| nodes.home(slot, part) == node;
            self.server.tell_by(&key, &is_here, (by, Retold::All), clock::now());
        }
        self.nodes.ahead[node] += by;
        self.full_keys().for_each(|key| self.note_clock(&key));
        self.last_longer(by);
    }

    /// The other node of a shard serves it from now on.
    pub(super) fn succeed_in_time(&mut self, shard: usize, [before, after]: [usize; 2]) {
        let by = self.nodes.ahead[after] - self.nodes.ahead[before];
        let is_of_it = |key: &String| self.nodes.shard(slot(key)) == shard;
        let keys: Vec<_> = self.full_keys().filter(is_of_it).collect();
        for key in keys {
            self.server.tell_by(&key, &|_| true, (by, Retold::All), clock::now());
            self.note_clock(&key);
        }
        self.last_longer(by);
    }

    /// Parts of a key come to another node.
    pub(super) fn pass_on(
        &mut self,
        key: &str,
        is_part: &dyn Fn(&str) -> bool,
        [from, to]: [usize; 2],
    ) {
        let by = self.nodes.ahead[to] - self.nodes.ahead[from];
        self.server.tell_by(key, is_part, (by, Retold::Values), clock::now());
        self.last_longer(by);
    }

    /// Makes known which clock tells the time at a key.
    pub(super) fn note_clock(&mut self, key: &str) {
        self.server.note_clock(key, self.nodes.ahead[self.nodes.home(slot(key), key)]);
    }

    /// Places of those who have gone stand so much longer where a clock is behind.
    fn last_longer(&mut self, by: i64) {
        if by < 0 {
            let over = clock::now() + by.unsigned_abs() + 8 * SECOND;
            self.troubled_until = self.troubled_until.max(over);
        }
    }

    fn full_keys(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.plan.keys.len()).map(full_key)
    }
}
