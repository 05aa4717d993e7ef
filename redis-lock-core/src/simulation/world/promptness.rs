//! How soon a waiter asks, where the network is calm: at once when a message names it, and every now
//! and then where no message comes, or where a lost one could cost it its turn. A waiter looks by itself after a second anyway, so that what breaks
//! one of these delays a waiter and shows nowhere else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::World;
use crate::Token;
use crate::simulation::clock::{self, MILLI};
use crate::simulation::pipe::lock;
use crate::simulation::plan::HistoryPlan;
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::process::SimulatedProcess;
use crate::simulation::random::{self, Random};

/// How long after a message its waiter asks, beside what the path takes: messages are followed 10 ms
/// apart.
const HINTED: u64 = 30 * MILLI;

/// How long a waiter that gets no messages waits between two looks, beside what the path takes.
const UNHINTED: u64 = 830 * MILLI;

/// How long the first in a queue waits between two looks, beside what the path takes.
const FIRST: u64 = 1_020 * MILLI;

/// A lease that outlasts some looks.
const LONG_LEASE: u64 = 5_000 * MILLI;

/// Makes these random numbers differ from others of the same seed.
const OF_DEAFNESS: u64 = 64;

/// When the tokens of waiters were asked for, and named by messages, the last time.
#[derive(Default)]
pub(super) struct Promptness {
    asked: HashMap<Arc<str>, u64>,
    hinted: HashMap<Arc<str>, u64>,
    /// The first in the queue of each key, and since when.
    first: BTreeMap<String, (Arc<str>, u64)>,
}

impl Promptness {
    pub(super) fn ask(&mut self, token: &Arc<str>) {
        self.asked.insert(Arc::clone(token), clock::now());
        self.hinted.remove(token);
    }

    pub(super) fn hint(&mut self, token: &str) {
        self.hinted.entry(token.into()).or_insert_with(clock::now);
    }

    fn note_first<'a>(&mut self, waiting: impl Iterator<Item = (&'a str, &'a Arc<str>)>) {
        let before = std::mem::take(&mut self.first);
        for (key, token) in waiting {
            let same = before.get(key).filter(|(first, _)| first == token);
            let since = same.map_or_else(clock::now, |(_, since)| *since);
            self.first.insert(key.to_owned(), (Arc::clone(token), since));
        }
    }
}

impl HistoryPlan {
    /// The history of a seed on several nodes from which no messages arrive at times.
    pub(in crate::simulation) fn losing_messages(seed: u64) -> Self {
        let mut plan = Self::on_nodes(seed);
        let count = plan.nodes.as_ref().map_or(1, |nodes| nodes.count);
        plan.lack_messages(count);
        plan
    }

    /// Nothing goes wrong, but that messages from some nodes don't come for a while. Leases are long,
    /// so that no waiter looks because one ends.
    pub(super) fn lack_messages(&mut self, count: usize) {
        let random = &mut Random::new(random::hash([self.seed, OF_DEAFNESS, 0, 0]));
        self.troubles.clear();
        (self.path.slow, self.path.bad_hints, self.path.rounds) = (0, 0, 0);
        for planned in &mut self.planned_calls {
            planned.ttl = planned.ttl.max(LONG_LEASE);
        }
        for _ in 0..random.below(8) {
            let at = random.below(self.calm_at);
            let node = random.below(count as u64) as usize;
            let lasts = random.pick(&[0, 2_000, 4_000, 6_000]) * MILLI;
            self.troubles.push((at, PlannedTrouble::DeafenAt { node, lasts }));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }
}

impl World {
    /// Every waiter asks in time.
    pub(super) fn check_promptness(&mut self) {
        self.promptness.note_first(self.server.first_waiting(clock::now()));
        let calm = self.calm_since();
        if self.plan.path.rounds > 0 || self.is_without_scripts() || clock::now() < calm {
            return;
        }
        let path = 4 * self.plan.path.latency + 4 * self.plan.path.sluggish;
        for (token, hinted) in &self.promptness.hinted {
            if *hinted >= calm && self.is_late(token, hinted + HINTED + path) {
                self.violated(format!("a message named {token}, and it was not asked for"));
            }
        }
        for (key, token) in self.server.waiting(clock::now()) {
            let Some(since) = self.lacks_messages(key, token) else { continue };
            let asked = self.promptness.asked.get(token).copied().unwrap_or(0);
            if self.is_late(token, asked.max(since).max(calm) + UNHINTED + path) {
                let what = format!("{token} gets no messages, and does not look");
                self.violated(what);
            }
        }
        for (token, since) in self.promptness.first.values() {
            let asked = self.promptness.asked.get(token).copied().unwrap_or(0);
            if self.is_late(token, asked.max(*since).max(calm) + FIRST + path) {
                self.violated(format!("{token} is the first in the queue, and does not look"));
            }
        }
    }

    /// Whether a process that is able to ask still waits with this token after the time limit.
    fn is_late(&self, token: &Arc<str>, due: u64) -> bool {
        let now = clock::now();
        let can = |it: &&SimulatedProcess| it.is_alive && !it.is_over && it.stands_until <= now;
        let process = self.process_of(token).filter(can);
        now > due && process.is_some_and(|it| it.core.awaits(token) && !self.is_sending(it.index))
    }

    /// Whether a socket has not taken all that a process sends. How soon that is sent is checked there.
    fn is_sending(&self, process: usize) -> bool {
        let mut pipes =
            self.links.iter().filter(|it| it.process == process).map(|it| lock(&it.pipe));
        pipes.any(|pipe| !pipe.is_dropped && !pipe.pushed.is_empty())
    }

    /// Since when the process of a token that waits for a mutex alone hears nothing from its node.
    fn lacks_messages(&self, key: &str, token: &Arc<str>) -> Option<u64> {
        let subscriptions = &self.process_of(token)?.subscriptions;
        let subscription =
            subscriptions.values().find(|subscription| self.nodes.has(subscription.node, key))?;
        let is_alone = self.server.tokens.get(token).is_some_and(|note| note.is_of_mutex);
        (is_alone && !subscription.is_listening).then_some(subscription.deaf_since)
    }

    fn process_of(&self, token: &Arc<str>) -> Option<&SimulatedProcess> {
        let token = Token::from_wire(token);
        let manager = token.manager()?;
        self.processes.iter().find(|process| *process.core.manager == *manager)
    }
}
