//! Nodes that leave the map and come back, and clusters that say that they are down.

use super::{World, WorldEvent};
use crate::simulation::clock::{self, MILLI};
use crate::simulation::plan::HistoryPlan;
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::random::{self, Random};

/// Makes these random numbers differ from others of the same seed.
const OF_FAILOVERS: u64 = 61;

/// How long it takes until a node that does nothing is replaced. None when it is asked to hand over.
const AFTER: [Option<u64>; 4] = [None, Some(1_200), Some(1_900), Some(2_800)];

/// How much longer than the others some nodes say that the cluster is down.
const DOWN_LONGER: u64 = 1_100;

impl HistoryPlan {
    /// Has nodes leave the map, and clusters be down.
    pub(super) fn lose_nodes(&mut self, count: usize) {
        let random = &mut Random::new(random::hash([self.seed, OF_FAILOVERS, 0, 0]));
        for _ in 0..random.below(4) {
            let at = random.below(self.calm_at);
            let lasts = random.pick(&[300, 1_500, 2_500, 4_000, 6_000]) * MILLI;
            let trouble = if random.percent(70) {
                let shard = random.below(count as u64) as usize;
                let after = random.pick(&AFTER).map(|after| after * MILLI);
                PlannedTrouble::FailOver { shard, after, lasts }
            } else {
                PlannedTrouble::ClusterDown { lasts }
            };
            self.troubles.push((at, trouble.lasting(lasts.min(self.calm_at - at))));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }
}

impl World {
    /// The first node of a shard is replaced, if that takes less time than it is gone.
    pub(super) fn fail_over(&mut self, shard: usize, after: Option<u64>, lasts: u64) {
        let now = clock::now();
        let is_frozen = now < self.frozen_until(shard);
        let is_moving = self.nodes.is_moving(shard) || self.nodes.failing.contains(&shard);
        if self.plan.nodes.is_none() || is_frozen || is_moving {
            return;
        }
        let Some(after) = after.filter(|after| *after < lasts) else {
            return match after {
                None => self.hand_over_shard(shard, lasts),
                Some(_) => self.freeze(shard, lasts),
            };
        };
        // It wakes some time after it was replaced.
        let frozen = after + self.chance(62, now, shard as u64) % (lasts - after);
        self.freeze(shard, frozen);
        self.nodes.failing.insert(shard);
        self.at(now + after, WorldEvent::TakeOver(shard));
        self.at(now + frozen, WorldEvent::Deposed(shard));
        self.at(now + lasts, WorldEvent::Return(shard));
    }

    /// The second node of a shard is asked to serve it, and the first one knows.
    fn hand_over_shard(&mut self, shard: usize, lasts: u64) {
        self.nodes.failing.insert(shard);
        self.succeed(shard);
        self.be_deposed(shard);
        self.after(lasts, WorldEvent::Return(shard));
    }

    /// The second node of a shard serves it unasked. Until all nodes know, some serve nothing.
    pub(super) fn take_over(&mut self, shard: usize) {
        self.succeed(shard);
        self.be_down(clock::now());
    }

    fn succeed(&mut self, shard: usize) {
        let (before, after) = self.nodes.succeed(shard);
        self.succeed_in_time(shard, [before, after]);
        let mut books = self.books.borrow_mut();
        books.history.step(48, after as u64);
        books.history.line(|_| format!("-- n{after} replaces n{before}, which leaves the map"));
        drop(books);
        if self.plan.has_sentinels() {
            return self.tell_sentinels();
        }
        self.spread([before, after]);
    }

    pub(super) fn come_back(&mut self, shard: usize) {
        self.succeed(shard);
        self.nodes.failing.remove(&shard);
        let second = shard + self.nodes.count() / 2;
        self.be_deposed(second);
    }

    /// A node knows that another one serves its shard.
    pub(super) fn be_deposed(&mut self, node: usize) {
        self.nodes.learn(node);
        self.deafen_at(node, 0);
    }

    /// The nodes say that the cluster is down, each for as long as it thinks so.
    pub(super) fn be_down(&mut self, until: u64) {
        let now = clock::now();
        if self.plan.nodes.is_none() {
            return;
        }
        for node in 0..self.nodes.count() {
            let longer = self.chance(63, now, node as u64) % DOWN_LONGER * MILLI;
            let down = &mut self.nodes.down_until[node];
            *down = (*down).max(until + longer);
        }
    }
}
