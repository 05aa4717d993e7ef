//! Several servers that share the keys by slot, as a cluster does: who has which slot, and what of a
//! slot that is half moved stands where. What stands at the keys is in one place, the model: at each
//! moment a key is at one node.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::clock;
use super::full_key;
use super::network::{Item, Unasked};
use super::plan::HistoryPlan;
use super::world::World;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::names::{Names, SLOTS, slot};
use crate::engine::Arbiter;
use crate::store::directory::{Directory, Map, Primary};
use crate::store::memory::State;
use crate::store::redirect::{NodeName, Redirect};
use crate::store::{BoxFuture, Command, Connector};

/// What a node does with a command.
pub(super) enum Verdict {
    Executes,
    Refuses(Fault),
    Redirects(Redirect),
}

/// Who has which slot, where that is not the node that had it first.
#[derive(Clone, Default)]
struct SlotOwners {
    epoch: u64,
    moved: BTreeMap<u16, usize>,
}

/// A slot that is half moved.
struct HalfMoved {
    to: usize,
    /// The keys that are still where the slot was.
    left: BTreeSet<String>,
}

pub(super) struct SimulatedNodes {
    count: usize,
    owners: SlotOwners,
    /// What each node knows of that.
    known: Vec<SlotOwners>,
    half_moved: BTreeMap<u16, HalfMoved>,
    pub(super) frozen_until: Vec<u64>,
}

impl SimulatedNodes {
    pub(super) fn new(plan: &HistoryPlan) -> Self {
        let count = plan.nodes.as_ref().map_or(1, |nodes| nodes.count);
        let mut owners = SlotOwners { epoch: 1, moved: BTreeMap::new() };
        for (key, owner) in plan.nodes.iter().flat_map(|nodes| nodes.owners.iter().enumerate()) {
            owners.moved.insert(slot(&full_key(key)), *owner);
        }
        Self {
            count,
            known: vec![owners.clone(); count],
            owners,
            half_moved: BTreeMap::new(),
            frozen_until: vec![0; count],
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn is_half_moved(&self, slot: u16) -> bool {
        self.half_moved.contains_key(&slot)
    }

    pub(super) fn owner(&self, slot: u16) -> usize {
        self.owners.owner(slot, self.count)
    }

    pub(super) fn begin_move(&mut self, slot: u16, to: usize, left: BTreeSet<String>) {
        self.half_moved.insert(slot, HalfMoved { to, left });
    }

    /// The node that a slot is moved to has all of it. It knows at once, as does the one that had
    /// the slot.
    pub(super) fn end_move(&mut self, slot: u16) -> Option<(usize, usize)> {
        let to = self.half_moved.remove(&slot)?.to;
        let from = self.owner(slot);
        self.owners.epoch += 1;
        self.owners.moved.insert(slot, to);
        for node in [from, to] {
            self.known[node] = self.owners.clone();
        }
        Some((from, to))
    }

    pub(super) fn learn(&mut self, node: usize) {
        self.known[node] = self.owners.clone();
    }

    /// The map, as the best informed of these nodes knows it.
    pub(super) fn map(&self, asked: impl Iterator<Item = usize>) -> Option<Map> {
        let owners = asked.map(|node| &self.known[node]).max_by_key(|it| it.epoch)?;
        let primaries = (0..self.count)
            .map(|node| Primary { name: name(node), slots: owners.slots_of(node, self.count) });
        Some(Map { epoch: owners.epoch, is_healthy: true, primaries: primaries.collect() })
    }

    /// What a node does with a command for these keys, of which those stand somewhere.
    fn verdict(
        &self,
        (node, asking): (usize, bool),
        slot: u16,
        keys: &BTreeSet<String>,
        present: &BTreeSet<String>,
    ) -> Verdict {
        let owner = self.owner(slot);
        let half_moved = self.half_moved.get(&slot);
        let is_here = |key: &&String| {
            let is_left = half_moved.is_none_or(|it| it.left.contains(*key));
            present.contains(*key) && is_left == (node == owner)
        };
        let here = keys.iter().filter(is_here).count();
        match half_moved {
            None if node == owner => Verdict::Executes,
            Some(_) if node == owner && here == keys.len() => Verdict::Executes,
            Some(_) if node == owner && here > 0 => try_again(),
            Some(it) if node == owner => Verdict::Redirects(Redirect::Ask { to: name(it.to) }),
            Some(it) if node == it.to && asking && (keys.len() == 1 || here == keys.len()) => {
                Verdict::Executes
            }
            Some(it) if node == it.to && asking => try_again(),
            _ => {
                // As far as this node knows.
                let to = match self.known[node].owner(slot, self.count) {
                    known if known == node => owner,
                    known => known,
                };
                Verdict::Redirects(Redirect::Moved { slot, to: name(to) })
            }
        }
    }
}

impl SlotOwners {
    fn owner(&self, slot: u16, count: usize) -> usize {
        let first = usize::from(slot) * count / usize::from(SLOTS);
        self.moved.get(&slot).copied().unwrap_or(first)
    }

    fn slots_of(&self, node: usize, count: usize) -> Vec<RangeInclusive<u16>> {
        let begins = |slot: u16| {
            self.owner(slot, count) == node && (slot == 0 || self.owner(slot - 1, count) != node)
        };
        let end = |from: u16| {
            (from..SLOTS).take_while(|slot| self.owner(*slot, count) == node).last().unwrap_or(from)
        };
        (0..SLOTS).filter(|slot| begins(*slot)).map(|from| from..=end(from)).collect()
    }
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
        let tombs = entry.tombs.iter().filter(|(_, tomb)| tomb.until > now);
        keys.extend(tombs.map(|(token, _)| names.tomb(token)));
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
        let keys = match self.plan.nodes {
            Some(_) => self.declared(command),
            None => BTreeSet::new(),
        };
        if keys.is_empty() {
            return Verdict::Executes;
        }
        let clock = self.server.clock(clock::now());
        let present = standing(&self.server.state, &command.names, clock);
        let slot = slot(command.names.main());
        if let Some(half_moved) = self.nodes.half_moved.get_mut(&slot) {
            // What is written again is written where the slot goes.
            half_moved.left.retain(|key| present.contains(key));
        }
        self.nodes.verdict((node, asking), slot, &keys, &present)
    }

    /// The keys that a command declares. A plain release that meets a mark goes on with all.
    fn declared(&mut self, command: &Command) -> BTreeSet<String> {
        use crate::store::redis::{declared, declared_by_script};
        let clock = self.server.clock(clock::now());
        let main = command.names.main();
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
        let map = self.nodes.map((0..self.nodes.count()).filter(answers)).filter(|_| !refused);
        let none = || Fault::new(FaultClass::Refused, "no node can be reached");
        let shown = map.as_ref().map(|map| map.epoch);
        self.books.borrow_mut().history.line(|_| format!("p{process} reads the map: {shown:?}"));
        self.processes[process].maps.push((number, map.ok_or_else(none)));
        self.drive_soon(process);
    }
}

/// What the engine knows the simulation by. It is never asked: the simulation makes connections and
/// reads maps when the engine wants them.
pub(super) fn arbiter(has_nodes: bool) -> Arbiter {
    if has_nodes { Arbiter::Several(Arc::new(Unlooked)) } else { Arbiter::One(Arc::new(Unasked)) }
}

struct Unlooked;

impl Directory for Unlooked {
    fn look(&self, _: Vec<NodeName>) -> BoxFuture<'static, Result<Map, Fault>> {
        Box::pin(std::future::pending())
    }

    fn look_interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn connector(&self, _: &NodeName) -> Arc<dyn Connector> {
        Arc::new(Unasked)
    }
}
