//! A history: time, the order of events, and what each of them does.

mod deposed;
mod ending;
mod engines;
mod failover;
mod inheritance;
mod invariants;
mod losses;
mod node_clocks;
mod nodes;
mod order;
mod promptness;
mod readers;
mod resharding;
mod sentinels;
mod stand_still;
mod success;
mod traffic;
mod transactions;
mod troubles;

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::Waker;

use super::books::Books;
use super::caller::SimulatedCaller;
use super::clock::{self, MILLI, SECOND};
use super::deviation::{Deviation, LATE, MessageSort};
use super::executor::{self, Executor, Home};
use super::history::History;
use super::network::NetworkLink;
use super::pipe::{Item, Noticed, notice};
use super::plan::HistoryPlan;
use super::process::SimulatedProcess;
use super::random;
use super::server::SimulatedServer;
use crate::engine::places::PlaceId;
use crate::store::Event as Hint;
use nodes::SimulatedNodes;
use promptness::Promptness;
use sentinels::SimulatedSentinels;
use traffic::LateBytes;
use transactions::Transaction;

/// How long after the end of all troubles everybody must have been served.
const LONGEST_SERVICE: u64 = 90 * SECOND;

/// Something that happens at some time.
enum WorldEvent {
    /// A command arrives at the server.
    Arrive(usize),
    /// So does one of a connection that is closed.
    Late(Box<LateBytes>),
    /// A round trip of a transaction arrives at the server.
    Transaction(Box<Transaction>),
    /// The client gives a transaction up.
    GiveUp(usize, u64),
    /// A process ends.
    Die(usize),
    Answer(usize, Item),
    /// The client learns that its connection has ended.
    End(usize),
    Drive(usize, u64),
    Connect(usize, PlaceId, u64),
    /// The nodes answer a process who has which slots.
    ReadMap(usize, u64),
    Subscribe(usize, PlaceId, u64),
    Hint(usize, PlaceId, Hint),
    Notices(usize),
    Wake(Waker),
    /// A socket takes more.
    Writable(usize),
    /// A task that was held up is polled.
    LetPoll(usize),
    /// A runtime of a process ends.
    EndRuntime(usize),
    Trouble(usize),
    Resume(usize),
    /// The slot of a key is moved whole.
    EndMove(usize),
    /// A sentinel learns which node serves.
    Informed(usize),
    /// A process hears from a sentinel that another node serves.
    Switched(usize),
    /// A node learns who has which slots.
    Gossip(usize),
    /// The second node of a shard begins to serve it.
    TakeOver(usize),
    /// The first one serves it again.
    Return(usize),
    /// A node learns that another one serves its shard.
    Deposed(usize),
    Look,
}

struct Scheduled {
    at: u64,
    number: u64,
    event: WorldEvent,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Everything in a history.
pub(super) struct World {
    pub(super) plan: HistoryPlan,
    pub(super) processes: Vec<SimulatedProcess>,
    pub(super) executor: Executor,
    pub(super) server: SimulatedServer,
    nodes: SimulatedNodes,
    sentinels: SimulatedSentinels,
    pub(super) links: Vec<NetworkLink>,
    pub(super) books: Rc<RefCell<Books>>,
    /// When the last trouble and its consequences are over at the latest.
    pub(super) troubled_until: u64,
    pub(super) hints_lost_until: u64,
    promptness: Promptness,
    /// The largest fencing number of each key.
    pub(super) fences: Vec<u64>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    pub(super) number: u64,
    /// When the last late bytes are executed.
    pub(super) late_until: u64,
    /// Something has happened since the last look.
    has_happened: bool,
    /// Until when a message that deviated can be why something fails in a process.
    disturbed_until: Vec<u64>,
    /// All messages so far.
    pub(super) messages: Vec<MessageSort>,
}

/// The result of a history.
pub(super) struct Ran {
    pub(super) messages: Vec<MessageSort>,
    pub(super) violation: Option<String>,
    pub(super) steps: u64,
    pub(super) hash: u64,
    pub(super) lines: String,
    pub(super) by_sort: [u64; 64],
}

impl Default for Ran {
    fn default() -> Self {
        let (messages, lines) = (Vec::new(), String::new());
        Self { messages, violation: None, steps: 0, hash: 0, lines, by_sort: [0; 64] }
    }
}

impl World {
    pub(super) fn new(plan: &HistoryPlan, keeps_lines: bool) -> Self {
        clock::set(0);
        crate::domain::env::simulated::begin(0, plan.seed);
        let history = History::new(keeps_lines);
        let books = Books { history, stalled: vec![0; plan.processes.len()], ..Books::default() };
        let mut world = Self {
            plan: plan.clone(),
            processes: Vec::new(),
            executor: Executor::default(),
            server: SimulatedServer::default(),
            nodes: SimulatedNodes::new(plan),
            sentinels: SimulatedSentinels::new(plan),
            links: Vec::new(),
            books: Rc::new(RefCell::new(books)),
            troubled_until: 0,
            hints_lost_until: 0,
            promptness: Promptness::default(),
            fences: vec![0; plan.keys.len()],
            queue: BinaryHeap::new(),
            number: 0,
            late_until: 0,
            has_happened: false,
            disturbed_until: vec![0; plan.processes.len()],
            messages: Vec::new(),
        };
        (0..plan.keys.len()).for_each(|key| world.note_clock(&super::full_key(key)));
        world.server.second_calls.has_rounds = plan.path.rounds > 0;
        world.do_without_scripts();
        world.number_calls();
        for index in 0..plan.processes.len() {
            world.add_process(index);
        }
        world.add_heirs();
        for (index, (at, _)) in plan.troubles.iter().enumerate() {
            world.at(*at, WorldEvent::Trouble(index));
        }
        for (at, process) in plan.readers.iter().flat_map(|readers| &readers.ends) {
            world.at(*at, WorldEvent::EndRuntime(*process));
        }
        world.at(50 * MILLI, WorldEvent::Look);
        world
    }

    fn add_process(&mut self, index: usize) {
        let arbiter = |_: &_| nodes::arbiter(&self.plan);
        let process = SimulatedProcess::new(index, &self.plan, &arbiter);
        self.executor.watch(&process.core);
        let tasks = self.plan.planned_calls.iter().filter(|planned| planned.process == index);
        let most = tasks.map(|planned| planned.task + 1).max().unwrap_or(0);
        for task in 0..most {
            let mine = |planned: &&super::plan::PlannedCall| {
                planned.process == index && planned.task == task
            };
            let planned_calls = self.plan.planned_calls.iter().filter(mine).cloned().collect();
            let caller = self.caller(index, &process);
            self.executor.spawn(index, Home::Caller, caller.live(planned_calls));
        }
        self.processes.push(process);
        self.begin_runtimes(index);
    }

    pub(super) fn caller(&self, index: usize, process: &SimulatedProcess) -> SimulatedCaller {
        SimulatedCaller {
            process: index,
            locks: process.locks.clone(),
            command_timeout: self.plan.processes[index].command_timeout,
            sorts: self.plan.keys.clone(),
            books: Rc::clone(&self.books),
            calm_at: self.plan.calm_at,
        }
    }

    /// Lets an event happen at this time.
    fn at(&mut self, at: u64, event: WorldEvent) {
        self.number += 1;
        let at = at.max(clock::now());
        self.queue.push(Reverse(Scheduled { at, number: self.number, event }));
    }

    fn after(&mut self, nanos: u64, event: WorldEvent) {
        self.at(clock::now() + nanos, event);
    }

    /// What happens to the next message of a process otherwise than usual.
    fn deviation(&mut self, sort: MessageSort, process: usize) -> Option<Deviation> {
        let number = self.messages.len();
        self.messages.push(sort);
        let deviations = &self.plan.deviations;
        let (_, deviation) = *deviations.iter().find(|(at, _)| *at == number)?;
        self.books.borrow_mut().history.line(|_| format!("-- message {number}: {deviation:?}"));
        self.troubled_until = self.troubled_until.max(clock::now() + LATE + 8 * SECOND);
        self.disturbed_until[process] = clock::now() + LATE;
        if deviation == Deviation::Dies {
            self.after(1, WorldEvent::Die(process));
        }
        Some(deviation)
    }

    /// Whether a message of a process deviated, and something that failed since this time may be due to that.
    fn is_disturbed(&self, process: usize, since: u64) -> bool {
        self.disturbed_until[process] > since
    }

    /// A number that depends on the seed, and on what is asked about.
    pub(super) fn chance(&self, what: u64, one: u64, other: u64) -> u64 {
        random::hash([self.plan.seed, what, one, other])
    }

    pub(super) fn is_violated(&self) -> bool {
        self.books.borrow().violation.is_some()
    }

    pub(super) fn violated(&self, what: impl Into<String>) {
        self.books.borrow_mut().violated(what.into());
    }

    /// Runs the history to its end.
    pub(super) fn run(&mut self) {
        self.react();
        let end = self.plan.calm_at + LONGEST_SERVICE + self.plan.given_away();
        while !self.is_violated() {
            if self.is_served() {
                return self.rest();
            }
            if clock::now() > end {
                return self.violated("a caller waits for ever");
            }
            self.step();
        }
    }

    fn is_served(&self) -> bool {
        clock::now() >= self.plan.calm_at
            && self.executor.is_done()
            && clock::now() >= self.late_until
    }

    /// Lets everything happen until this time.
    pub(super) fn pass_until(&mut self, end: u64) {
        while !self.is_violated() && self.queue.peek().is_some_and(|Reverse(next)| next.at <= end) {
            self.step();
        }
        clock::set(clock::now().max(end));
    }

    fn step(&mut self) {
        let Some(Reverse(next)) = self.queue.pop() else { return };
        clock::set(next.at);
        self.has_happened |= !matches!(next.event, WorldEvent::Look);
        self.happen(next.event);
        self.react();
        self.check();
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Arrive(link) => self.arrive(link),
            WorldEvent::Transaction(transaction) => self.round_trip(*transaction),
            WorldEvent::GiveUp(link, seq) => self.give_up(link, seq),
            WorldEvent::Die(process) => self.kill(process),
            WorldEvent::Late(bytes) => self.execute_late(*bytes),
            WorldEvent::Answer(link, item) => self.answer(link, item),
            WorldEvent::End(link) => self.end_link(link),
            WorldEvent::Drive(process, number) => self.drive(process, number),
            WorldEvent::Connect(process, place, number) => self.connect(process, place, number),
            WorldEvent::ReadMap(process, number) => self.read_map(process, number),
            WorldEvent::Subscribe(process, place, epoch) => self.subscribe(process, place, epoch),
            WorldEvent::Hint(process, place, hint) => self.hint(process, place, hint),
            WorldEvent::Notices(process) => self.carry_out(process),
            WorldEvent::Wake(waker) => waker.wake(),
            WorldEvent::Writable(link) => notice(&self.links[link].pipe, Noticed::Writable),
            WorldEvent::LetPoll(task) => self.executor.put_back(task),
            WorldEvent::EndRuntime(process) => self.end_runtime(process),
            WorldEvent::Trouble(index) => {
                let (_, trouble) = self.plan.troubles[index];
                self.trouble(trouble);
            }
            WorldEvent::Resume(process) => self.resume(process),
            WorldEvent::EndMove(key) => self.end_move(key),
            WorldEvent::Informed(sentinel) => self.inform(sentinel),
            WorldEvent::Switched(process) => self.switched(process),
            WorldEvent::Gossip(node) => self.nodes.learn(node),
            WorldEvent::TakeOver(shard) => self.take_over(shard),
            WorldEvent::Return(shard) => self.come_back(shard),
            WorldEvent::Deposed(node) => self.be_deposed(node),
            WorldEvent::Look => {
                self.look();
                self.after(50 * MILLI, WorldEvent::Look);
            }
        }
    }

    /// What follows at once from what has happened.
    pub(super) fn react(&mut self) {
        loop {
            let woken = self.executor.woken();
            for task in &woken {
                self.poll(*task);
            }
            self.take_spawned();
            for (at, waker) in executor::sleepers() {
                self.at(at, WorldEvent::Wake(waker));
            }
            for process in 0..self.processes.len() {
                self.check_engine(process);
            }
            for link in 0..self.links.len() {
                self.transmit(link);
            }
            if woken.is_empty() {
                return;
            }
        }
    }

    fn poll(&mut self, task: usize) {
        let owner = self.executor.process_of(task);
        let process = &mut self.processes[owner];
        if !process.is_alive {
            return;
        }
        if process.tasks_stand_until() > clock::now() {
            process.stood.push(task);
            return;
        }
        if self.executor.is_held(task) {
            return;
        }
        process.clock.enter();
        self.poll_at_home(task);
    }
}
