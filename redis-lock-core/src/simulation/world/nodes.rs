//! Several servers that share the keys by slot, as a cluster does: which node has which slot, and
//! where each key of a half-moved slot is. What stands at the keys is in one place, the model: at
//! each moment a key is at one node. Slots belong to shards, and each shard has two nodes, of which
//! one serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::World;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::names::{Names, SLOTS, slot};
use crate::engine::Arbiter;
use crate::simulation::network::Unasked;
use crate::simulation::pipe::Item;
use crate::simulation::plan::HistoryPlan;
use crate::simulation::{clock, full_key};
use crate::store::memory::State;
use crate::store::wire::{Directory, Map, NodeName, Primary, Redirect};
use crate::store::{BoxFuture, Command, Connector};

/// What a node does with a command.
pub(super) enum Verdict {
    Executes,
    Refuses(Fault),
    /// It refuses, and ends the connection.
    Deposed(Fault),
    Redirects(Redirect),
}

/// Which shard has which slot, where that is not the one that had it first, and which shards are served
/// by their second node.
#[derive(Clone, PartialEq, Eq, Default)]
struct SlotOwners {
    epoch: u64,
    moved: BTreeMap<u16, usize>,
    succeeded: BTreeSet<usize>,
}

/// A slot that is half moved.
struct HalfMoved {
    /// The shard that gets it.
    to: usize,
    /// The keys that are still where the slot was.
    left: BTreeSet<String>,
}

pub(super) struct SimulatedNodes {
    /// How many shards there are. The second node of each comes after the first ones of all.
    shards: usize,
    owners: SlotOwners,
    /// The node that raised the epoch last.
    raised_by: Option<usize>,
    /// What each node knows of that.
    known: Vec<SlotOwners>,
    half_moved: BTreeMap<u16, HalfMoved>,
    /// Shards whose first node has failed, until it serves again.
    pub(super) failing: BTreeSet<usize>,
    pub(super) frozen_until: Vec<u64>,
    /// How far the clock of each node is ahead.
    pub(super) ahead: Vec<i64>,
    /// Until when each node says that the cluster is down.
    pub(super) down_until: Vec<u64>,
}

impl SimulatedNodes {
    pub(super) fn new(plan: &HistoryPlan) -> Self {
        let shards = plan.nodes.as_ref().map_or(1, |nodes| nodes.count);
        let count = if plan.nodes.is_some() { shards * 2 } else { 1 };
        let mut owners = SlotOwners { epoch: 1, ..SlotOwners::default() };
        for (key, owner) in plan.nodes.iter().flat_map(|nodes| nodes.owners.iter().enumerate()) {
            owners.moved.insert(slot(&full_key(key)), *owner);
        }
        Self {
            shards,
            known: vec![owners.clone(); count],
            owners,
            raised_by: None,
            half_moved: BTreeMap::new(),
            failing: BTreeSet::new(),
            frozen_until: vec![0; count],
            ahead: plan.nodes.as_ref().map_or_else(|| vec![0], |nodes| nodes.ahead.clone()),
            down_until: vec![0; count],
        }
    }

    /// The keys of a half moved slot that are still where it was.
    pub(super) fn left(&self, slot: u16) -> BTreeSet<String> {
        self.half_moved.get(&slot).map(|it| it.left.clone()).unwrap_or_default()
    }

    /// The node at which a key stands, or would be written, that belongs to a lock.
    pub(super) fn home(&self, slot: u16, key: &str) -> usize {
        let [owner, to] = self.ends_of(slot);
        if self.half_moved.get(&slot).is_none_or(|it| it.left.contains(key)) { owner } else { to }
    }

    /// How many nodes there are, whether they serve a shard or not.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    pub(super) fn is_half_moved(&self, slot: u16) -> bool {
        self.half_moved.contains_key(&slot)
    }

    pub(super) fn shard(&self, slot: u16) -> usize {
        self.owners.shard(slot, self.shards)
    }

    fn owner(&self, slot: u16) -> usize {
        self.owners.owner(slot, self.shards)
    }

    /// Whether a node has the slot of a key.
    pub(super) fn has(&self, node: usize, main: &str) -> bool {
        self.owner(slot(main)) == node
    }

    /// Whether a slot of this shard is on its way.
    pub(super) fn is_moving(&self, shard: usize) -> bool {
        self.half_moved.iter().any(|(slot, it)| it.to == shard || self.shard(*slot) == shard)
    }

    /// Whether a node serves its shard.
    pub(super) fn serves(&self, node: usize) -> bool {
        self.owners.primary(node % self.shards, self.shards) == node
    }

    /// The other node of a shard serves it from now on. Returns the one that did, and the one that
    /// does and knows it.
    pub(super) fn succeed(&mut self, shard: usize) -> (usize, usize) {
        let before = self.owners.primary(shard, self.shards);
        self.owners.epoch += 1;
        if !self.owners.succeeded.insert(shard) {
            self.owners.succeeded.remove(&shard);
        }
        let after = self.owners.primary(shard, self.shards);
        self.raised_by = Some(after);
        self.learn(after);
        (before, after)
    }

    pub(super) fn begin_move(&mut self, slot: u16, to: usize, left: BTreeSet<String>) {
        self.half_moved.insert(slot, HalfMoved { to, left });
    }

    /// The nodes that have a slot and get it.
    pub(super) fn ends_of(&self, slot: u16) -> [usize; 2] {
        let from = self.owner(slot);
        let to = self.half_moved.get(&slot).map(|it| self.owners.primary(it.to, self.shards));
        [from, to.unwrap_or(from)]
    }

    /// The node that a slot is moved to has all of it. It knows at once, as does the one that had
    /// the slot. The epoch rises unless that node was the last one to raise it.
    pub(super) fn end_move(&mut self, slot: u16) -> Option<(usize, usize)> {
        let shard = self.half_moved.remove(&slot)?.to;
        let from = self.owner(slot);
        self.owners.moved.insert(slot, shard);
        let to = self.owner(slot);
        if self.raised_by.replace(to) != Some(to) {
            self.owners.epoch += 1;
        }
        for node in [from, to] {
            self.learn(node);
        }
        Some((from, to))
    }

    pub(super) fn learn(&mut self, node: usize) {
        self.known[node] = self.owners.clone();
    }

    /// Until when a node does nothing, or says that the cluster is down.
    pub(super) fn troubled_until(&self) -> u64 {
        self.frozen_until.iter().chain(&self.down_until).copied().max().unwrap_or(0)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.owners.epoch
    }

    /// The node that serves a shard.
    pub(super) fn primary(&self, shard: usize) -> usize {
        self.owners.primary(shard, self.shards)
    }

    /// The map, as the best informed of these nodes knows it.
    pub(super) fn map(&self, asked: &[usize], now: u64) -> Option<Map> {
        let known = |node: &usize| &self.known[*node];
        let epoch = asked.iter().map(|node| known(node).epoch).max()?;
        let same = || asked.iter().filter(|node| known(node).epoch == epoch);
        let best =
            same().max_by_key(|of| same().filter(|node| known(node) == known(of)).count())?;
        let well = same().filter(|node| now >= self.down_until[**node]).count();
        let slots = known(best).slots(self.shards).into_iter();
        let primaries = slots.map(|(node, slots)| Primary { name: name(node), slots }).collect();
        let is_disputed = same().any(|node| known(node) != known(best));
        Some(Map { epoch, is_healthy: well * 2 > same().count(), is_disputed, primaries })
    }

    /// What a node does with a command for these `keys`, of which those in `present` exist at some
    /// node.
    fn verdict(
        &self,
        (node, asking): (usize, bool),
        slot: u16,
        keys: &BTreeSet<String>,
        present: &BTreeSet<String>,
    ) -> Verdict {
        let [owner, to] = self.ends_of(slot);
        let half_moved = self.half_moved.get(&slot);
        let to = half_moved.map(|_| to);
        let is_here = |key: &&String| {
            let is_left = half_moved.is_none_or(|it| it.left.contains(*key));
            present.contains(*key) && is_left == (node == owner)
        };
        let here = keys.iter().filter(is_here).count();
        match to {
            None if node == owner => Verdict::Executes,
            Some(_) if node == owner && here == keys.len() => Verdict::Executes,
            Some(_) if node == owner && here > 0 => try_again(),
            Some(to) if node == owner => Verdict::Redirects(Redirect::Ask { to: name(to) }),
            Some(to) if node == to && asking && (keys.len() == 1 || here == keys.len()) => {
                Verdict::Executes
            }
            Some(to) if node == to && asking => try_again(),
            _ => {
                // As far as this node knows.
                let to = match self.known[node].owner(slot, self.shards) {
                    known if known == node => owner,
                    known => known,
                };
                Verdict::Redirects(Redirect::Moved { slot, to: name(to) })
            }
        }
    }
}

impl SlotOwners {
    fn shard(&self, slot: u16, shards: usize) -> usize {
        let first = usize::from(slot) * shards / usize::from(SLOTS);
        self.moved.get(&slot).copied().unwrap_or(first)
    }

    fn primary(&self, shard: usize, shards: usize) -> usize {
        if self.succeeded.contains(&shard) { shard + shards } else { shard }
    }

    fn owner(&self, slot: u16, shards: usize) -> usize {
        self.primary(self.shard(slot, shards), shards)
    }

    /// The slots of each node that has any.
    fn slots(&self, shards: usize) -> BTreeMap<usize, Vec<RangeInclusive<u16>>> {
        let firsts = (0..shards).map(|shard| (shard * usize::from(SLOTS)).div_ceil(shards) as u16);
        let moved = self.moved.keys().flat_map(|slot| [*slot, slot + 1]);
        let from: BTreeSet<u16> = firsts.chain(moved).filter(|slot| *slot < SLOTS).collect();
        let to = from.iter().skip(1).copied().chain([SLOTS]);
        let mut slots: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (from, to) in from.iter().zip(to) {
            slots.entry(self.owner(*from, shards)).or_default().push(*from..=to - 1);
        }
        slots
    }
}

fn shown(map: &Option<Map>) -> String {
    let Some(map) = map else { return "no map".to_owned() };
    let names: Vec<_> = map.primaries.iter().map(|primary| &*primary.name).collect();
    let health = if map.is_healthy { "" } else { ", not healthy" };
    let dispute = if map.is_disputed { ", disputed" } else { "" };
    format!("map {}: {}{health}{dispute}", map.epoch, names.join(" "))
}

fn try_again() -> Verdict {
    Verdict::Refuses(Fault::new(FaultClass::Moving, "TRYAGAIN"))
}

fn name(node: usize) -> NodeName {
    format!("n{node}:1").into()
}

pub(super) fn node_of(name: &NodeName) -> usize {
    let number = name.trim_start_matches('n').split(':').next();
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The keys of locks that stand on a server.
pub(super) fn standing(state: &State, names: &Names, now: Moment) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for names in names.all() {
        let Some(entry) = state.entries.get(names.main()) else { continue };
        let mut holders = entry.holders.iter().filter(|holder| holder.end > now);
        if let Some(first) = holders.next() {
            keys.insert(names.main().to_owned());
            keys.extend(first.kind.limit().map(|_| names.limit()));
        }
        if entry.queue.iter().any(|waiter| waiter.until > now) {
            keys.extend([names.queue(), names.waiters()]);
        }
        keys.extend(entry.fence.as_ref().map(|_| names.fence()));
        let tombstones = entry.tombstones.iter().filter(|(_, tombstone)| tombstone.until > now);
        keys.extend(tombstones.map(|(token, _)| names.tombstone(token)));
    }
    keys
}

impl World {
    pub(super) fn frozen_until(&self, node: usize) -> u64 {
        self.server.frozen_until.max(self.nodes.frozen_until[node])
    }

    pub(super) fn shown_node(&self, node: usize) -> String {
        if self.plan.nodes.is_none() { "server".to_owned() } else { format!("n{node}") }
    }

    /// What a node does with a command: it looks at the keys that the real encoder declares.
    pub(super) fn verdict(&mut self, node: usize, asking: bool, command: &Command) -> Verdict {
        if self.plan.has_sentinels() {
            return self.verdict_alone(node, command);
        }
        let keys = match self.plan.nodes {
            Some(_) => self.declared(command),
            None => BTreeSet::new(),
        };
        if keys.is_empty() {
            return Verdict::Executes;
        }
        if clock::now() < self.nodes.down_until[node] {
            return Verdict::Refuses(Fault::new(FaultClass::Refused, "CLUSTERDOWN"));
        }
        let clock = self.server.clock_at(command.names.main(), clock::now());
        let present = standing(&self.server.state, &command.names, clock);
        let slot = slot(command.names.main());
        if let Some(half_moved) = self.nodes.half_moved.get_mut(&slot) {
            // A key that is written again is written at the node that gets the slot.
            half_moved.left.retain(|key| present.contains(key));
            self.note_clock(command.names.main());
        }
        self.nodes.verdict((node, asking), slot, &keys, &present)
    }

    /// The keys that a command declares. A plain release that meets a mark goes on with all.
    fn declared(&mut self, command: &Command) -> BTreeSet<String> {
        use crate::store::redis::{declared, declared_by_script};
        let main = command.names.main();
        let clock = self.server.clock_at(main, clock::now());
        let is_marked = self.server.state.is_waited_for(main, clock);
        let plain = declared(command);
        let keys = match plain.len() {
            1 if is_marked && command.verb.is_release() => declared_by_script(command),
            _ => plain,
        };
        keys.into_iter().collect()
    }

    pub(super) fn redirect(
        &mut self,
        index: usize,
        seq: u64,
        command: Command,
        redirect: Redirect,
    ) {
        let mut books = self.books.borrow_mut();
        books.history.step(46, seq);
        let (process, node) = (self.links[index].process, self.links[index].node);
        books.history.line(|_| format!("n{node}: q{seq} of p{process}: {redirect:?}"));
        drop(books);
        self.reply(index, Item::Redirected(seq, command, redirect));
    }

    /// The nodes that can be asked tell a process who has which slots.
    pub(super) fn read_map(&mut self, process: usize, number: u64) {
        let now = clock::now();
        let chance = self.chance(56, now, process as u64);
        if now < self.server.loses_until {
            return;
        }
        // Each is asked, and not all answer in time.
        let answers = |node: &usize| now >= self.frozen_until(*node) && chance >> node & 1 == 0;
        let refused = now < self.server.refuses_until;
        let map = if self.plan.has_sentinels() {
            self.ask_sentinels(process, chance)
        } else {
            let asked: Vec<_> = (0..self.nodes.count()).filter(answers).collect();
            self.nodes.map(&asked, now)
        };
        let map = map.filter(|_| !refused);
        let none = || Fault::new(FaultClass::Refused, "no node can be reached");
        self.books.borrow_mut().history.line(|_| format!("p{process} reads {}", shown(&map)));
        self.processes[process].maps.push((number, map.ok_or_else(none)));
        self.drive_soon(process);
    }
}

/// The directory that the engine has. It is never asked: the simulation makes connections and reads
/// maps when the engine wants them.
pub(super) fn arbiter(plan: &HistoryPlan) -> Arbiter {
    // As often as the directory of a cluster, and that of sentinels.
    let interval = Duration::from_millis(if plan.has_sentinels() { 500 } else { 30_000 });
    match plan.nodes {
        Some(_) => Arbiter::Several(Arc::new(Unlooked { interval })),
        None => Arbiter::One(Arc::new(Unasked)),
    }
}

struct Unlooked {
    interval: Duration,
}

impl Directory for Unlooked {
    fn look(&self, _: Vec<NodeName>) -> BoxFuture<'_, Result<Map, Fault>> {
        Box::pin(std::future::pending())
    }

    fn look_interval(&self) -> Duration {
        self.interval
    }

    fn connector(&self, _: &NodeName) -> Arc<dyn Connector> {
        Arc::new(Unasked)
    }
}
