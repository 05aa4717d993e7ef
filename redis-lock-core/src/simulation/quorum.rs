//! The engine above a quorum: whole processes, the connection that asks all nodes, and three or five
//! nodes that restart empty, are slow, are cut off, and have clocks of their own.

mod callers;
mod client;
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use self::callers::{FENCED, QuorumCaller, QuorumNotes};
use self::client::QuorumClient;
use super::clock::{self, MILLI, SECOND};
use super::executor::{self, Executor, Home};
use super::network::Unasked;
use super::plan::{HistoryPlan, ProcessPlan};
use super::process::SimulatedProcess;
use super::random::{self, Random};
use crate::domain::env::simulated;
use crate::domain::lease::last_fence;
use crate::engine::Arbiter;
use crate::store::Event;
use crate::store::quorum::tests::fake::{FakeLinks, FakeNode};

/// Where a history begins, in milliseconds. Nodes are of age by then.
const BEGIN: u64 = 100_000;

/// Makes the rates of clocks differ from other numbers of a seed.
const OF_RATES: u64 = 130;

/// How long what was refused before a clock jumped may still come to a node, and stay there, in
/// milliseconds.
const STRAY: u64 = 2_500;

/// Leases of one question end at all nodes within this.
const SAME: Duration = Duration::from_millis(150);

/// How long nodes may know what no process knows, or lack what a process has, where nothing is wrong.
const SETTLING: u64 = 1_500;

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
    has_jumped: bool,
    /// How long a node that has restarted does not vote.
    rejoin: Duration,
    /// Since when a node has a token that its process does not know.
    unknown: HashMap<Arc<str>, u64>,
}

impl QuorumWorld {
    fn new(seed: u64, nodes: usize, clients: usize, rejoin: Duration) -> Self {
        let mut random = Random::new(seed);
        clock::set(BEGIN * MILLI);
        simulated::begin(BEGIN * MILLI, seed);
        let nodes: Vec<_> = (0..nodes).map(|_| FakeNode::new(&mut random)).collect();
        // Nodes may be as much faster as a client has to bear, and clients as much faster than nodes.
        let rates = &mut Random::new(random::hash([seed, OF_RATES, 0, 0]));
        let mut process = || {
            let rate = rates.pick(&[0, 4_000, 9_000]);
            ProcessPlan { rate, command_timeout: SECOND / 2 }
        };
        let processes = (0..clients).map(|_| process()).collect();
        let plan = HistoryPlan { processes, readers: None, ..HistoryPlan::of(1) };
        let plan = HistoryPlan { nodes: None, path: super::tests::calm(MILLI), ..plan };
        let mut executor = Executor::default();
        let mut client = |at| {
            let process = SimulatedProcess::new(at, &plan, &|_| Arbiter::One(Arc::new(Unasked)));
            executor.watch(&process.core);
            QuorumClient::new(process, FakeLinks::roster(nodes.len(), rejoin))
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
            has_jumped: false,
            rejoin,
            unknown: HashMap::new(),
        }
    }

    fn caller(&self, at: usize, seed: u64) -> QuorumCaller {
        let locks = self.clients[at].process.locks.clone();
        QuorumCaller { locks, random: Random::new(seed), notes: Rc::clone(&self.notes) }
    }

    fn spawn(&mut self, at: usize, task: impl Future<Output = ()> + 'static) {
        self.clients[at].enter();
        self.executor.spawn(at, Home::Thread, task);
    }

    /// Lets a millisecond pass.
    fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        clock::set(self.now * MILLI);
        self.nodes.iter_mut().for_each(|node| node.ahead += node.fast);
        for at in 0..self.clients.len() {
            self.clients[at].enter();
            self.carry(at);
            self.clients[at].connect(self.now);
            self.clients[at].listen(self.now);
            self.clients[at].turn(self.now);
            self.clients[at].process.core.carry_out_all();
        }
        self.poll();
        self.check()
    }

    fn carry(&mut self, at: usize) {
        let manager = Arc::clone(&self.clients[at].process.core.manager);
        let Some(mut links) = self.clients[at].links.take() else { return };
        if self.clients[at].process.is_over {
            links.cut.fill(true);
        }
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
                self.clients[self.executor.process_of(task)].enter();
                self.executor.poll(task, None);
            }
        }
    }

    /// No two holds exclude each other, fences rise, and what is known on both sides agrees where nothing is
    /// wrong.
    fn check(&mut self) -> Result<(), String> {
        let (clients, now) = (&self.clients, self.now);
        clients.iter().try_for_each(|client| client.check_prompt(now))?;
        let believes = |at: usize, hold: &crate::lock::hold::Hold| {
            clients[at].enter();
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
        self.leases_at(at).into_iter().map(|(token, _)| token).collect()
    }

    /// The same, with what is left of their leases.
    fn leases_at(&self, at: usize) -> Vec<(Arc<str>, Duration)> {
        let (node, mut all) = (&self.nodes[at], Vec::new());
        let clock = node.clock(self.now);
        for (_, entry) in node.state.entries.iter().filter(|(key, _)| key.starts_with("lock:")) {
            let held = entry.holders.iter().filter(|it| it.end > clock);
            all.extend(held.map(|it| (Arc::clone(&it.token), it.end.since(clock))));
        }
        all
    }

    /// The clock of a node is set forward or back. Where it was one of just as many nodes as have to have
    /// a token, that one may be lost without a word.
    fn jump(&mut self, node: usize, millis: i64) {
        let before = self.leases_at(node);
        self.nodes[node].ahead += millis * 1_000;
        self.has_jumped = true;
        let odd = if millis > 0 { STRAY } else { millis.unsigned_abs() };
        self.troubled_at = self.now + odd;
        if millis < 0 {
            let ahead = self.nodes.iter().map(|node| node.ahead);
            let apart = ahead.clone().max().unwrap_or(0) - ahead.min().unwrap_or(0);
            if Duration::from_micros(apart.unsigned_abs()) >= self.rejoin {
                self.lose_fences();
            }
            return;
        }
        let all: Vec<_> = (0..self.nodes.len()).map(|at| self.leases_at(at)).collect();
        for (token, left) in before {
            let lasts =
                |(other, rest): &(Arc<str>, Duration)| *other == token && *rest + SAME > left;
            let having = all.iter().filter(|leases| leases.iter().any(lasts)).count();
            if having <= self.nodes.len() / 2 {
                self.notes.borrow_mut().excused.insert(token.to_string());
            }
        }
    }

    /// Something goes wrong, or right again.
    fn trouble(&mut self) {
        self.troubled_at = self.now;
        let node = self.random.below(self.nodes.len() as u64) as usize;
        let client = self.random.below(self.clients.len() as u64) as usize;
        match self.random.below(7) {
            6 => {
                let millis = self.random.pick(&[-2_000, -900, -90, 90, 900, 8_000]);
                self.jump(node, millis);
            }
            0 | 1 => {
                // It dies, and comes back empty, also after a while. Fewer than a majority are of that age.
                let is_young = |it: &&FakeNode| !it.is_up || self.now - it.since < 4_000;
                if self.nodes.iter().filter(is_young).count() < self.nodes.len() / 2 {
                    let (now, run) = (self.now, self.random.next());
                    self.nodes[node].restart(now, run);
                    self.nodes[node].is_up = self.random.percent(50);
                    self.lose_fences();
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

    /// Where clocks have jumped, numbers may fall once too few nodes are left that know the last one: those that
    /// restart begin anew by their clocks, also those that had restarted before.
    fn lose_fences(&mut self) {
        let mut notes = self.notes.borrow_mut();
        let Some(last) = notes.fences.get_mut(FENCED).filter(|_| self.has_jumped) else { return };
        let knowing = (0..self.nodes.len()).filter(|at| self.knows_fence(*at, last)).count();
        if knowing <= self.nodes.len() / 2 {
            last.0 = 0;
        }
    }

    /// Whether a node gives the next token a larger number. One that has given the same numbers to another
    /// token, which then was refused, may give them to that one again.
    fn knows_fence(&self, at: usize, (last, token): &(u64, Arc<str>)) -> bool {
        let entry = self.nodes[at].state.entries.get(&format!("lock:{FENCED}"));
        let (number, owner) =
            entry.and_then(|entry| entry.fence.as_ref()).map_or((0, ""), |last| last.of());
        number > last_fence(*last) || number >= *last && *owner == **token
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
            self.clients[at].enter();
            drop(self.executor.remove(at));
            if !self.clients[at].process.is_over {
                self.clients[at].process.abandon();
            }
        }
        self.sleepers.clear();
        for mut client in std::mem::take(&mut self.clients) {
            client.enter();
            client.links = None;
            drop(client);
        }
        simulated::end();
    }
}
