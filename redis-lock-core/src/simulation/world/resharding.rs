//! Histories on several nodes: how keys are spread, and how slots move.

use std::collections::BTreeSet;

use super::nodes::standing;
use super::{World, WorldEvent};
use crate::LossReason;
use crate::domain::clock::Moment;
use crate::domain::names::{Names, slot};
use crate::simulation::books::HoldNote;
use crate::simulation::clock::{self, MILLI};
use crate::simulation::full_key;
use crate::simulation::plan::{HistoryPlan, NodesPlan, Sort};
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::random::{self, Random};

/// Makes these random numbers differ from those of the plan for one server.
const OF_NODES: u64 = 57;

/// Slower paths than this lose short leases by themselves.
const QUICK: u64 = 5 * MILLI;

/// How long a slot stays half moved.
const HALF_MOVED: [u64; 8] = [0, 0, 5, 40, 300, 1_100, 2_500, 5_000];

impl HistoryPlan {
    /// The history of a seed on several nodes, whose slots move.
    pub(in crate::simulation) fn on_nodes(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        let random = &mut Random::new(random::hash([seed, OF_NODES, 0, 0]));
        let count = random.between(2, 3) as usize;
        let owners = plan.keys.iter().map(|_| random.below(count as u64) as usize).collect();
        let only_moves = random.percent(30);
        if only_moves {
            plan.troubles.clear();
            (plan.path.slow, plan.path.bad_hints) = (0, 0);
            plan.path.latency = plan.path.latency.min(QUICK);
        }
        plan.nodes = Some(NodesPlan {
            count,
            owners,
            ahead: vec![0; count * 2],
            only_moves,
            has_sentinels: false,
        });
        for planned in plan.planned_calls.iter_mut().filter(|planned| planned.keys.len() > 1) {
            // Fenced keys in several slots take two round trips, which a lease has to outlast.
            planned.ttl = planned.ttl.max(plan.path.latency * 8);
        }
        plan.move_slots(count, random);
        match random.below(6) {
            0 => plan.lack_messages(count),
            _ if only_moves => {}
            _ => plan.lose_nodes(count),
        }
        plan.set_clocks();
        plan
    }

    fn move_slots(&mut self, count: usize, random: &mut Random) {
        for _ in 0..random.below(8) {
            let at = random.below(self.calm_at);
            let lasts = (random.pick(&HALF_MOVED) * MILLI).min(self.calm_at - at);
            let key = random.below(self.keys.len() as u64) as usize;
            let to = random.below(count as u64) as usize;
            let part = random.pick(&[0, 50, 100]);
            self.troubles.push((at, PlannedTrouble::MoveSlot { key, to, part, lasts }));
        }
        let is_troubled = self.nodes.as_ref().is_some_and(|nodes| !nodes.only_moves);
        for _ in 0..if is_troubled { random.below(3) } else { 0 } {
            let at = random.below(self.calm_at);
            let node = random.below(count as u64) as usize;
            let lasts = random.pick(&[200, 900, 2_100]) * MILLI;
            let trouble = match random.percent(50) {
                true => PlannedTrouble::DeafenAt { node, lasts: 0 },
                false => PlannedTrouble::FrozenNode { node, lasts: lasts.min(self.calm_at - at) },
            };
            self.troubles.push((at, trouble));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }
}

impl World {
    pub(super) fn begin_move(&mut self, key: usize, to: usize, part: u64, lasts: u64) {
        let (now, name) = (clock::now(), full_key(key));
        let slot = slot(&name);
        let from = self.nodes.shard(slot);
        // Nothing moves from or to a node that does nothing.
        let is_failing =
            |shard: &usize| self.nodes.failing.contains(shard) || now < self.frozen_until(*shard);
        let is_moving = self.nodes.is_half_moved(slot);
        let several = self.plan.nodes.is_some() && from != to;
        if !several || is_moving || [from, to].iter().any(is_failing) {
            return;
        }
        let names = Names::new("lock", name.clone());
        let clock = self.server.clock_at(names.main(), now);
        let mut left = BTreeSet::new();
        for (at, key) in standing(&self.server.state, &names, clock).into_iter().enumerate() {
            if self.chance(58, now, at as u64) % 100 >= part {
                left.insert(key);
            }
        }
        let is_moved = |part: &str| !left.contains(part);
        self.pass_on(&name, &is_moved, [from, to].map(|shard| self.nodes.primary(shard)));
        self.nodes.begin_move(slot, to, left);
        self.note_clock(&name);
        self.at(now + lasts, WorldEvent::EndMove(key));
    }

    pub(super) fn end_move(&mut self, key: usize) {
        let (name, slot) = (full_key(key), slot(&full_key(key)));
        let ends = self.nodes.ends_of(slot);
        let frozen = ends.map(|node| self.frozen_until(node));
        let thawed = frozen.into_iter().max().unwrap_or(0);
        if clock::now() < thawed {
            return self.at(thawed, WorldEvent::EndMove(key));
        }
        let left = self.nodes.left(slot);
        self.pass_on(&name, &|part| left.contains(part), ends);
        let Some((from, to)) = self.nodes.end_move(slot) else { return };
        self.note_clock(&name);
        let mut books = self.books.borrow_mut();
        books.history.step(47, key as u64);
        books.history.line(|_| format!("-- the slot of k{key} is moved from n{from} to n{to}"));
        drop(books);
        self.spread([from, to]);
    }

    /// The other nodes learn what these know.
    pub(super) fn spread(&mut self, known: [usize; 2]) {
        let now = clock::now();
        for node in (0..self.nodes.count()).filter(|node| !known.contains(node)) {
            let late = self.chance(59, now, node as u64) % 1_500 * MILLI;
            self.at(now + late, WorldEvent::Gossip(node));
        }
    }

    /// All subscriptions at a node end, as they do when it loses the slot of their channel, and for
    /// a while there are no others.
    pub(super) fn deafen_at(&mut self, node: usize, lasts: u64) {
        let delay = (self.plan.path.latency * 4).max(lasts);
        for index in 0..self.processes.len() {
            let Some(place) = self.processes[index].place_at(node) else { continue };
            let Some(subscription) = self.processes[index].subscriptions.get(&place).copied()
            else {
                continue;
            };
            let manager = self.processes[index].core.manager.clone();
            self.server.subscribers.remove(&(node, manager));
            if subscription.is_listening {
                self.stop_listening(index, place);
            }
            if let Some(epoch) = subscription.epoch {
                self.after(delay, WorldEvent::Subscribe(index, place, epoch));
            }
        }
    }

    pub(super) fn freeze(&mut self, node: usize, lasts: u64) {
        let now = clock::now();
        if now >= self.frozen_until(node) {
            self.nodes.frozen_until[node] = now + lasts;
        }
    }
}

impl World {
    /// Whether a hold was lost that is renewed, while nothing was wrong but that slots moved.
    pub(super) fn lost_by_moves(&self, note: &HoldNote, now: Moment) -> bool {
        let only_moves = self.plan.nodes.as_ref().is_some_and(|nodes| nodes.only_moves);
        let is_mutex = note.keys.iter().all(|key| self.plan.keys[*key] == Sort::Mutex);
        let is_expired = matches!(note.hold.quiet_loss(now), Some(LossReason::Expired));
        only_moves
            && is_mutex
            && note.hold.demand.terms.renew
            && is_expired
            && !self.is_hold_disturbed(note)
    }
}
