//! The engine above a quorum: whole processes, the connection that asks all nodes, and three or five
//! nodes that restart empty, are slow, are cut off, and have clocks of their own.

mod callers;
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use futures_util::FutureExt;

use self::callers::{QuorumCaller, QuorumNotes};
use super::clock::{self, MILLI, SECOND};
use super::executor::{self, Executor, Home};
use super::network::Unasked;
use super::plan::{HistoryPlan, ProcessPlan};
use super::process::SimulatedProcess;
use super::random::Random;
use crate::domain::env::simulated;
use crate::domain::error::{Fault, FaultClass};
use crate::engine::Arbiter;
use crate::engine::places::{FIRST, PlaceId};
use crate::store::quorum::Roster;
use crate::store::quorum::tests::fake::{FakeLinks, FakeNode};
use crate::store::{Connected, Event, Wire};

/// Where a history begins, in milliseconds. Nodes are of age by then.
const BEGIN: u64 = 100_000;

/// How long nodes may know what no process knows, or lack what a process has, where nothing is wrong.
const SETTLING: u64 = 1_500;

/// A connection that is being made: to which place, as which attempt, and until when.
type Connecting = (Box<dyn Wire>, (PlaceId, u64), u64);

struct QuorumClient {
    process: SimulatedProcess,
    roster: Arc<Roster>,
    links: Option<FakeLinks>,
    connecting: Option<Connecting>,
    /// Messages on their way: when they arrive, and from which node.
    events: Vec<(u64, usize, Event)>,
    /// Grants of one token: when the other nodes had their time, and which nodes have granted it.
    grants: BTreeMap<String, (u64, BTreeSet<usize>)>,
    listens: bool,
    next_return: u64,
}

struct QuorumWorld {
    random: Random,
    now: u64,
    nodes: Vec<FakeNode>,
    clients: Vec<QuorumClient>,
    executor: Executor,
    sleepers: Vec<(u64, Waker)>,
    notes: Rc<RefCell<QuorumNotes>>,
    /// When something last went wrong.
    troubled_at: u64,
    /// Since when a node has a token that its process does not know.
    unknown: HashMap<Arc<str>, u64>,
}

impl QuorumWorld {
    fn new(seed: u64, nodes: usize, clients: usize, rejoin: Duration) -> Self {
        let mut random = Random::new(seed);
        clock::set(BEGIN * MILLI);
        simulated::begin(BEGIN * MILLI, seed);
        let nodes: Vec<_> = (0..nodes).map(|_| FakeNode::new(&mut random)).collect();
        let process = || ProcessPlan { rate: 0, command_timeout: SECOND / 2 };
        let processes = (0..clients).map(|_| process()).collect();
        let plan = HistoryPlan { processes, readers: None, ..HistoryPlan::of(1) };
        let plan = HistoryPlan { nodes: None, path: super::tests::calm(MILLI), ..plan };
        let mut executor = Executor::default();
        let mut client = |at| {
            let process = SimulatedProcess::new(at, &plan, &|_| Arbiter::One(Arc::new(Unasked)));
            executor.watch(&process.core);
            QuorumClient {
                process,
                roster: FakeLinks::roster(nodes.len(), rejoin),
                links: None,
                connecting: None,
                events: Vec::new(),
                grants: BTreeMap::new(),
                listens: false,
                next_return: 0,
            }
        };
        let clients: Vec<_> = (0..clients).map(&mut client).collect();
        Self {
            random,
            now: BEGIN,
            nodes,
            clients,
            executor,
            sleepers: Vec::new(),
            notes: Rc::default(),
            troubled_at: BEGIN,
            unknown: HashMap::new(),
        }
    }

    fn caller(&self, at: usize, seed: u64) -> QuorumCaller {
        let locks = self.clients[at].process.locks.clone();
        QuorumCaller { locks, random: Random::new(seed), notes: Rc::clone(&self.notes) }
    }

    fn spawn(&mut self, at: usize, task: impl Future<Output = ()> + 'static) {
        self.clients[at].process.clock.enter();
        self.executor.spawn(at, Home::Thread, task);
    }

    /// Lets a millisecond pass.
    fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        clock::set(self.now * MILLI);
        self.nodes.iter_mut().for_each(|node| node.ahead += node.fast);
        for at in 0..self.clients.len() {
            self.clients[at].process.clock.enter();
            self.carry(at);
            self.clients[at].connect(self.now);
            self.clients[at].listen(self.now);
            self.turn(at);
        }
        self.poll();
        self.check()
    }

    fn carry(&mut self, at: usize) {
        let manager = Arc::clone(&self.clients[at].process.core.manager);
        let Some(mut links) = self.clients[at].links.take() else { return };
        let mut told = Vec::new();
        let clients = &self.clients;
        let mut tell = |node: usize, manager: &str, event: Option<Event>| {
            let is_it = |it: &QuorumClient| *it.process.core.manager == *manager;
            let Some(to) = clients.iter().position(is_it) else { return false };
            let listens =
                to == at || clients[to].links.as_ref().is_some_and(|it| it.is_linked(node));
            told.extend(event.filter(|_| listens).map(|event| (to, node, event)));
            listens
        };
        links.carry(&mut self.nodes, &manager, (self.now, &mut self.random), &mut tell);
        self.clients[at].links = Some(links);
        for (to, node, event) in told {
            let due = self.now + self.nodes[node].latency;
            self.clients[to].events.push((due, node, event));
        }
    }

    fn turn(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let driven = client.process.turn();
        client.process.core.carry_out_all();
        for (place, number) in driven.connects {
            let (wire, links) = FakeLinks::connect(&client.roster, client.links.take());
            client.links = Some(links);
            client.connecting = Some((wire, (place, number), self.now + 500));
        }
    }

    fn poll(&mut self) {
        loop {
            self.sleepers.extend(executor::sleepers());
            let (due, later) = self.sleepers.drain(..).partition(|(at, _)| *at <= self.now * MILLI);
            self.sleepers = later;
            let due: Vec<(u64, Waker)> = due;
            due.into_iter().for_each(|(_, waker)| waker.wake());
            let woken = self.executor.woken();
            if woken.is_empty() {
                return;
            }
            for task in woken {
                self.clients[self.executor.process_of(task)].process.clock.enter();
                self.executor.poll(task, None);
            }
        }
    }

    /// No two holds exclude each other, fences rise, and what is known on both sides agrees where nothing is
    /// wrong.
    fn check(&mut self) -> Result<(), String> {
        let (clients, now) = (&self.clients, self.now);
        let believes = |at: usize, hold: &crate::lock::hold::Hold| {
            clients[at].process.clock.enter();
            !hold.remaining(crate::domain::clock::Moment::now()).is_zero()
        };
        self.notes.borrow_mut().check(&believes).map_err(|what| format!("{what} at {now}"))?;
        if now < self.troubled_at + SETTLING || now % 20 != 0 {
            self.unknown.clear();
            return Ok(());
        }
        let known: BTreeSet<Arc<str>> = clients
            .iter()
            .flat_map(|client| {
                let (in_machines, leaving) = client.process.core.tokens();
                in_machines.into_iter().chain(leaving)
            })
            .collect();
        let tokens: BTreeSet<_> = (0..self.nodes.len()).flat_map(|at| self.held_at(at)).collect();
        self.unknown.retain(|token, _| tokens.contains(token) && !known.contains(token));
        for token in tokens.iter().filter(|token| !known.contains(*token)) {
            if *self.unknown.entry(Arc::clone(token)).or_insert(now) + 300 < now {
                return Err(format!("a node has {token} at {now}, of which no process knows"));
            }
        }
        Ok(())
    }

    /// The tokens that have a lock at a node.
    fn held_at(&self, at: usize) -> Vec<Arc<str>> {
        let (node, mut all) = (&self.nodes[at], Vec::new());
        let clock = node.clock(self.now);
        for (_, entry) in node.state.entries.iter().filter(|(key, _)| key.starts_with("lock:")) {
            let held = entry.holders.iter().filter(|it| it.end > clock);
            all.extend(held.map(|it| Arc::clone(&it.token)));
        }
        all
    }

    /// Something goes wrong, or right again.
    fn trouble(&mut self) {
        self.troubled_at = self.now;
        let node = self.random.below(self.nodes.len() as u64) as usize;
        let client = self.random.below(self.clients.len() as u64) as usize;
        match self.random.below(6) {
            0 | 1 => {
                // It dies, and comes back empty, also after a while. Fewer than a majority are of that age.
                let is_young = |it: &&FakeNode| !it.is_up || self.now - it.since < 4_000;
                if self.nodes.iter().filter(is_young).count() < self.nodes.len() / 2 {
                    let (now, run) = (self.now, self.random.next());
                    self.nodes[node].restart(now, run);
                    self.nodes[node].is_up = self.random.percent(50);
                }
            }
            2 => self.cut(client, node, true),
            3 => self.heal(),
            4 => self.nodes[node].latency = self.random.pick(&[1, 2, 5, 30, 90]),
            _ => {
                if let Some(down) = self.nodes.iter_mut().find(|node| !node.is_up) {
                    let run = self.random.next();
                    down.restart(self.now, run);
                }
            }
        }
    }

    fn cut(&mut self, client: usize, node: usize, is_cut: bool) {
        if let Some(links) = &mut self.clients[client].links {
            links.cut[node] = is_cut;
        }
    }

    fn heal(&mut self) {
        for client in 0..self.clients.len() {
            (0..self.nodes.len()).for_each(|node| self.cut(client, node, false));
        }
    }

    fn pass(&mut self, millis: u64) -> Result<(), String> {
        (0..millis).try_for_each(|_| self.step())
    }

    /// Lets time pass until something is so.
    fn until(
        &mut self,
        most: u64,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        for _ in 0..most {
            if is_so(self) {
                return Ok(());
            }
            self.step()?;
        }
        Err(format!("not within {most} ms: {what}"))
    }
}

impl Drop for QuorumWorld {
    fn drop(&mut self) {
        for at in 0..self.clients.len() {
            self.clients[at].process.clock.enter();
            drop(self.executor.remove(at));
            self.clients[at].process.abandon();
        }
        self.sleepers.clear();
        for mut client in std::mem::take(&mut self.clients) {
            client.process.clock.enter();
            client.links = None;
            drop(client);
        }
        simulated::end();
    }
}

impl QuorumClient {
    fn linked(&self) -> usize {
        let links = self.links.as_ref();
        links.map_or(0, |links| (0..links.cut.len()).filter(|at| links.is_linked(*at)).count())
    }

    fn majority(&self) -> usize {
        self.roster.names().len() / 2 + 1
    }

    /// Hands over a connection when it leads to a majority.
    fn connect(&mut self, now: u64) {
        let (linked, needed) = (self.linked(), self.majority());
        let Some((wire, _, until)) = &mut self.connecting else { return };
        // What becomes of one node is its own concern.
        let _ = wire.fill();
        if linked < needed && now < *until {
            return;
        }
        let Some((wire, (place, number), _)) = self.connecting.take() else { return };
        let fault = || Fault::new(FaultClass::Refused, "too few nodes can be reached");
        let made = (linked >= needed).then_some(Connected { wire, watcher: None });
        self.process.inputs.push((place, number, made.ok_or_else(fault)));
    }

    /// Passes on what the nodes say, as the task does that listens at all of them.
    fn listen(&mut self, now: u64) {
        let needed = self.majority();
        let listens = self.linked() >= needed;
        if listens != self.listens {
            self.listens = listens;
            self.process.hints.push((FIRST, Event::Listening { hints_enabled: listens }));
        }
        if now >= self.next_return && self.roster.returned.notified().now_or_never().is_some() {
            self.next_return = now + 500;
            self.process.hints.push((FIRST, Event::Returned));
        }
        let (due, later) = self.events.drain(..).partition(|(at, ..)| *at <= now);
        self.events = later;
        let due: Vec<(u64, usize, Event)> = due;
        for (_, node, event) in due {
            let Event::Granted { token, waited_for } = event else {
                self.process.hints.push((FIRST, event));
                continue;
            };
            let (_, granted) =
                self.grants.entry(token.clone()).or_insert((now + 4, BTreeSet::new()));
            if granted.insert(node) && granted.len() == needed {
                self.process.hints.push((FIRST, Event::Granted { token, waited_for }));
            }
        }
        let hints = &mut self.process.hints;
        self.grants.retain(|token, (until, granted)| {
            if *until <= now && granted.len() < needed {
                let token = token.clone();
                hints.push((FIRST, Event::Granted { token, waited_for: true }));
            }
            *until > now
        });
    }
}
