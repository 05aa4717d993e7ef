//! A quorum whose nodes restart empty, are slow, are cut from some clients, and have clocks of their own.
//! A seed decides everything.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use super::super::node::{Node, NodeSlot};
use super::super::wire::QuorumWire;
use super::super::{Roster, Seat};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::env::simulated;
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::domain::too_few::Vote;
use crate::simulation::random::Random;
use crate::store::memory::{State, To};
use crate::store::{Acquire, Answer, Command, Connected, Event, Filled, Inbox, Pulled, Verb, Wire};

pub(super) const TTL: Duration = Duration::from_millis(1_000);
/// For how long a client believes in that, in milliseconds: clocks may differ by 1 %.
const BELIEVED: u64 = 988;
const REJOIN: Duration = Duration::from_millis(1_300);
const NODE_LIMIT: Duration = Duration::from_millis(500);

/// Where the history begins. Nodes are of age by then.
pub(super) const BEGIN: u64 = 100_000;

/// One node, as its clients see it.
pub(crate) struct FakeNode {
    pub(crate) state: State,
    /// Which run of it this is, and since when.
    run: u64,
    pub(crate) since: u64,
    pub(crate) is_up: bool,
    /// What its clock showed when this run began.
    began: Moment,
    /// By how many microseconds its clock is ahead, and how many more it is with each millisecond.
    pub(crate) ahead: i64,
    pub(crate) fast: i64,
    /// How long a message takes, each way.
    pub(crate) latency: u64,
}

/// Hears what a node tells a manager, and says whether that one listens there.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(usize, &str, Option<Event>) -> bool;

impl FakeNode {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut node = Self {
            state: State::default(),
            run: random.next(),
            since: 0,
            is_up: true,
            began: Moment::START,
            ahead: random.below(1_000_000) as i64,
            fast: random.below(10) as i64,
            latency: random.between(1, 4),
        };
        node.began = node.clock(0);
        node
    }

    /// It starts anew, and has forgotten everything.
    pub(crate) fn restart(&mut self, now: u64, run: u64) {
        (self.state, self.run, self.since, self.is_up) = (State::default(), run, now, true);
        self.began = self.clock(now);
    }

    fn execute(
        &mut self,
        at: usize,
        command: &Command,
        manager: &Arc<str>,
        (now, tell): (u64, Listener<'_>),
    ) -> Result<Answer, Fault> {
        let clock = self.clock(now);
        let mut hear = |to: To<'_>, event| tell(at, to.name(), event);
        self.state.answer(command, manager, clock, &mut hear)
    }

    pub(crate) fn clock(&self, now: u64) -> Moment {
        Moment::from_nanos((now * 1_000).saturating_add_signed(self.ahead) * 1_000)
    }
}

/// One connection to a node: what is under way in both directions, and when it arrives.
#[derive(Default)]
pub(crate) struct FakeLine {
    pub(super) up: VecDeque<(u64, u64, Command)>,
    down: VecDeque<(u64, u64, Result<Answer, Fault>)>,
    /// What has arrived at the client, and since when it has not looked.
    inbox: Inbox<(u64, Result<Answer, Fault>)>,
    unread_since: Option<u64>,
    is_cut: bool,
    run: u64,
    now: u64,
    latency: u64,
}

impl FakeLine {
    /// Hands over what has come to its end by now.
    fn deliver(&mut self) {
        while self.down.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((_, seq, answer)) = self.down.pop_front() else { return };
            self.unread_since.get_or_insert(self.now);
            self.inbox.put((seq, answer));
        }
    }

    fn cut(&mut self) {
        if !std::mem::replace(&mut self.is_cut, true) {
            self.unread_since.get_or_insert(self.now);
            self.inbox.wake();
        }
    }
}

struct FakeWire {
    line: Arc<Mutex<FakeLine>>,
    read: VecDeque<(u64, Result<Answer, Fault>)>,
}

impl Wire for FakeWire {
    fn push(&mut self, seq: u64, command: Command) {
        let mut line = self.line.lock().unwrap();
        let at = line.now + line.latency;
        let at = line.up.back().map_or(at, |(last, ..)| at.max(*last));
        line.up.push_back((at, seq, command));
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let mut line = self.line.lock().unwrap();
        line.unread_since = None;
        let mut arrived = line.inbox.take();
        let received = !arrived.is_empty();
        self.read.append(&mut arrived);
        match line.is_cut {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(Filled { received, more: false }),
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.lock().unwrap().inbox.poll_news(context)
    }

    fn pull(&mut self, _: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        let (seq, answer) = self.read.pop_front()?;
        Some(Pulled::Done(seq, answer))
    }
}

/// The connections of one client to all nodes.
pub(crate) struct FakeLinks {
    pub(crate) seats: Vec<Seat>,
    slots: Vec<Arc<NodeSlot>>,
    pub(super) lines: Vec<Option<Arc<Mutex<FakeLine>>>>,
    /// What was sent on connections that have ended, and arrives: when, at which node, and its run.
    pub(super) strays: Vec<(u64, usize, u64, Command)>,
    /// The nodes that it can't reach.
    pub(crate) cut: Vec<bool>,
}

impl FakeLinks {
    pub(crate) fn roster(nodes: usize, rejoin: Duration) -> Arc<Roster> {
        let names = (0..nodes).map(|at| format!("n{at}").into()).collect();
        Roster::new(names, rejoin, |what| Names::new("", what))
    }

    fn new(roster: &Arc<Roster>) -> (QuorumWire, Self) {
        let seats = roster.seats_of();
        let made: Vec<_> = seats.iter().map(|seat| Node::new(seat.clone())).collect();
        let slots = made.iter().map(|(node, ..)| Arc::clone(&node.slot)).collect();
        let nodes: Vec<_> = made.into_iter().map(|(node, ..)| node).collect();
        let (lines, cut) = (nodes.iter().map(|_| None).collect(), vec![false; nodes.len()]);
        let wire = QuorumWire::new(nodes, Arc::clone(roster), NODE_LIMIT);
        (wire, Self { seats, slots, lines, strays: Vec::new(), cut })
    }

    /// The connection of an engine, in place of the one that it had before.
    pub(crate) fn connect(roster: &Arc<Roster>, before: Option<Self>) -> (Connected, Self) {
        let (wire, mut links) = Self::new(roster);
        if let Some(before) = before {
            (links.strays, links.cut) = (before.strays, before.cut);
        }
        (Box::new(wire), links)
    }

    /// Since when something has arrived that the client has not looked at.
    pub(crate) fn unread_since(&self) -> Option<u64> {
        let lines = self.lines.iter().flatten().filter(|line| Arc::strong_count(line) > 1);
        lines.filter_map(|line| line.lock().unwrap().unread_since).min()
    }

    /// Whether there is a connection to a node.
    pub(crate) fn is_linked(&self, at: usize) -> bool {
        self.lines[at].as_ref().is_some_and(|line| !line.lock().unwrap().is_cut)
    }

    /// Makes connections, and carries what is under way on them.
    pub(crate) fn carry(
        &mut self,
        nodes: &mut [FakeNode],
        manager: &Arc<str>,
        (now, random): (u64, &mut Random),
        tell: Listener<'_>,
    ) {
        for (index, node) in nodes.iter_mut().enumerate() {
            let is_reached = node.is_up && !self.cut[index];
            let is_used = |line: &Arc<_>| Arc::strong_count(line) > 1;
            if is_reached && !self.lines[index].as_ref().is_some_and(is_used) && now % 20 == 0 {
                // Servers count it by the clock on their wall.
                let uptime = node.clock(now).since(node.began);
                let run = node.run.to_string();
                self.seats[index].introduced(Some(&run), Some(uptime), "", Moment::now()).unwrap();
                let (run, latency) = (node.run, node.latency);
                let line = FakeLine { run, now, latency, ..FakeLine::default() };
                let line = Arc::new(Mutex::new(line));
                let wire = FakeWire { line: Arc::clone(&line), read: VecDeque::new() };
                self.slots[index].put(Ok(Box::new(wire)));
                self.lines[index] = Some(line);
            }
            let Some(line) = &self.lines[index] else { continue };
            let mut line = line.lock().unwrap();
            (line.now, line.latency) = (now, node.latency);
            line.deliver();
            if !is_reached || line.run != node.run {
                line.cut();
            }
            if node.run != line.run || !node.is_up {
                line.up.clear();
            }
            if line.is_cut {
                // What was sent before it broke may still arrive, also after that of the next one.
                let run = line.run;
                let mut stray = |(_, _, command)| (now + random.below(1_000), index, run, command);
                self.strays.extend(line.up.drain(..).map(&mut stray));
            }
            while line.up.front().is_some_and(|(at, ..)| *at <= now) {
                let Some((_, seq, command)) = line.up.pop_front() else { break };
                let answer = node.execute(index, &command, manager, (now, tell));
                let back = now + line.latency;
                line.down.push_back((back, seq, answer));
            }
        }
        self.strays.retain(|(due, index, run, command)| {
            let node = &mut nodes[*index];
            if *due <= now && node.run == *run && node.is_up {
                let _ = node.execute(*index, command, manager, (now, tell));
            }
            *due > now
        });
    }
}

/// A client that acquires, holds and releases one lock, again and again.
pub(super) struct FakeClient {
    pub(super) wire: QuorumWire,
    pub(super) links: FakeLinks,
    pub(super) token: Arc<str>,
    pub(super) doing: Doing,
    seq: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Doing {
    Rests { until: u64 },
    Asks { sent: u64, tries: u32 },
    Holds { end: u64, leaves: u64, renews: u64, open: Option<u64>, fence: u64 },
    Leaves,
}

pub(super) struct FakeQuorum {
    random: Random,
    pub(super) now: u64,
    pub(super) nodes: Vec<FakeNode>,
    pub(super) clients: Vec<FakeClient>,
    last_fence: u64,
    grants: u32,
}

impl FakeQuorum {
    pub(super) fn new(seed: u64, nodes: usize, clients: usize) -> Self {
        let mut random = Random::new(seed);
        simulated::begin(BEGIN * 1_000_000, seed);
        let nodes: Vec<_> = (0..nodes).map(|_| FakeNode::new(&mut random)).collect();
        let clients = (0..clients).map(|_| FakeClient::new(nodes.len(), REJOIN)).collect();
        let last_fence = 0;
        Self { random, now: BEGIN, nodes, clients, last_fence, grants: 0 }
    }

    /// Lets a millisecond pass.
    pub(super) fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        simulated::set_now(self.now * 1_000_000);
        self.nodes.iter_mut().for_each(|node| node.ahead += node.fast);
        for at in 0..self.clients.len() {
            self.carry(at);
            self.act(at)?;
        }
        Ok(())
    }

    fn carry(&mut self, at: usize) {
        let (manager, times) = (format!("m{at}").into(), (self.now, &mut self.random));
        let links = &mut self.clients[at].links;
        links.carry(&mut self.nodes, &manager, times, &mut |_, _, _| true);
    }

    fn act(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        let answers = self.clients[at].answers();
        for (seq, answer) in answers {
            self.answered(at, seq, answer)?;
        }
        let random = self.random.next();
        let client = &mut self.clients[at];
        match client.doing {
            Doing::Rests { until } if until <= now => {
                client.token = Arc::clone(Token::fresh(&format!("m{at}"), "").wire());
                client.ask(now, 0);
            }
            Doing::Holds { end, .. } if end <= now => client.leave(),
            Doing::Holds { leaves, .. } if leaves <= now => client.leave(),
            Doing::Holds { renews, open: None, end, leaves, fence } if renews <= now => {
                let token = Arc::clone(&client.token);
                client.push(Verb::Renew { token, ttl: Some(TTL) });
                let renews = now + 100 + random % 200;
                client.doing = Doing::Holds { end, leaves, renews, open: Some(now), fence };
            }
            _ => {}
        }
        let holders = self.clients.iter().filter(|client| client.holds(now)).count();
        if holders > 1 { Err(format!("{holders} hold it at {now}")) } else { Ok(()) }
    }

    fn answered(
        &mut self,
        at: usize,
        seq: u64,
        answer: Result<Answer, Fault>,
    ) -> Result<(), String> {
        let (now, client) = (self.now, &mut self.clients[at]);
        if seq + 1 != client.seq {
            return Ok(());
        }
        let pause = now + 1 + self.random.below(60);
        match (client.doing, answer) {
            (Doing::Asks { sent, .. }, Ok(Answer::Held { fence: Some(fence), slot: None })) => {
                self.grants += 1;
                let end = sent + BELIEVED;
                let most = self.random.pick(&[100, 200, 2_500]);
                let leaves = now + self.random.below(most);
                client.doing = Doing::Holds { end, leaves, renews: now + 300, open: None, fence };
                if fence <= self.last_fence {
                    return Err(format!("{fence} after {} at {now}", self.last_fence));
                }
                self.last_fence = fence;
            }
            (Doing::Asks { tries, .. }, _) if tries < 5 => client.ask(pause, tries + 1),
            (Doing::Asks { .. }, _) => client.leave(),
            (Doing::Holds { leaves, renews, open: Some(sent), fence, end }, answer) => {
                let end = match answer {
                    Ok(Answer::Renewed { .. }) => end.max(sent + BELIEVED),
                    Ok(_) => now,
                    Err(_) => end,
                };
                client.doing = Doing::Holds { end, leaves, renews, open: None, fence };
            }
            (Doing::Leaves, _) => client.doing = Doing::Rests { until: pause },
            _ => {}
        }
        Ok(())
    }

    /// Something goes wrong, or right again.
    fn trouble(&mut self) {
        let (node, client) = (
            self.random.below(self.nodes.len() as u64) as usize,
            self.random.below(self.clients.len() as u64) as usize,
        );
        match self.random.below(5) {
            0 | 1 => {
                // It forgets everything. Fewer than a majority are of that age at a time.
                let (now, run) = (self.now, self.random.next());
                let young = self.nodes.iter().filter(|it| now - it.since < 4_000).count();
                if young < self.nodes.len() / 2 {
                    self.nodes[node].restart(now, run);
                }
            }
            2 => self.clients[client].links.cut[node] = true,
            3 => self.clients.iter_mut().for_each(|client| client.links.cut.fill(false)),
            _ => self.nodes[node].latency = self.random.pick(&[1, 2, 5, 30, 90]),
        }
    }

    pub(super) fn run(seed: u64, nodes: usize) -> Result<u32, String> {
        let mut world = Self::new(seed, nodes, 4);
        for step in 0..8_000 {
            world.step()?;
            if step % 100 == 0 {
                world.trouble();
                if let Some(fault) = world.clients.iter().find_map(|client| client.wire.misuse()) {
                    return Err(fault.what);
                }
                let clients = &mut world.clients;
                let mut seats = clients.iter().flat_map(|client| &client.links.seats);
                if seats.any(|seat| seat.bar(Moment::now()) == Some(Vote::Clock)) {
                    return Err("a clock counts as fast that is not".into());
                }
            }
        }
        Ok(world.grants)
    }
}

impl FakeClient {
    pub(super) fn new(nodes: usize, rejoin: Duration) -> Self {
        let (wire, links) = FakeLinks::new(&FakeLinks::roster(nodes, rejoin));
        let doing = Doing::Rests { until: 0 };
        Self { wire, links, token: "".into(), doing, seq: 0 }
    }

    pub(super) fn push(&mut self, verb: Verb) {
        let names = Names::new("", "k");
        let command = Command { names, kind: Kind::Mutex, verb, timeout: TTL };
        self.wire.push(self.seq, command);
        self.seq += 1;
    }

    pub(super) fn ask(&mut self, sent: u64, tries: u32) {
        self.doing = Doing::Asks { sent: sent.min(Moment::now().as_nanos() / 1_000_000), tries };
        let terms = Acquire { fences: 1, ..Acquire::of(Arc::clone(&self.token), Some(TTL)) };
        self.push(Verb::Acquire(terms));
    }

    pub(super) fn leave(&mut self) {
        let token = Arc::clone(&self.token);
        self.doing = Doing::Leaves;
        self.push(Verb::Release {
            token,
            waited_for: false,
            keep: None,
            share: None,
            tombstone: None,
        });
    }

    fn answers(&mut self) -> Vec<(u64, Result<Answer, Fault>)> {
        self.wire.fill().unwrap();
        let mut answers = Vec::new();
        while let Some(Pulled::Done(seq, answer)) = self.wire.pull(&mut |_| true) {
            answers.push((seq, answer));
        }
        answers
    }

    pub(super) fn holds(&self, now: u64) -> bool {
        matches!(self.doing, Doing::Holds { end, .. } if now < end)
    }
}

impl FakeQuorum {
    /// How many nodes have the lock.
    pub(super) fn having(&mut self) -> usize {
        let having = |node: &mut FakeNode| {
            let clock = node.clock(self.now);
            let entry = node.state.entries.get_mut("k");
            entry.is_some_and(|entry| !entry.is_free_of_locks(clock))
        };
        self.nodes.iter_mut().map(having).filter(|has| *has).count()
    }

    pub(super) fn pass(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.step().unwrap());
    }
}
