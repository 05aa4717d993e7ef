//! A history: time, the order of events, and what each of them does.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use futures_util::FutureExt;

use super::books::Books;
use super::caller::Caller;
use super::clock::{self, MILLI, SECOND};
use super::executor::{self, Executor};
use super::history::History;
use super::network::{Item, Link, Pipe, Shared, SimulatedWire, State, Unasked, lock};
use super::plan::{Plan, Trouble};
use super::process::Process;
use super::random;
use super::server::Server;
use crate::error::{Fault, FaultClass};
use crate::store::{Command, Connected, Event as Hint};

/// How long after the end of all troubles everybody must have been served.
const LONGEST_SERVICE: u64 = 90 * SECOND;

/// How long after their sending bytes can be executed at the latest: as long as a place lasts.
const LATEST: u64 = 4_900 * MILLI;

/// Something that happens at some time.
pub(super) enum Event {
    /// A command arrives at the server.
    Arrive(usize, u64, u64, Box<Command>),
    /// So does one of a connection that is closed.
    Late(usize, u64, Box<Command>),
    Answer(usize, Item),
    /// The client learns that its connection has ended.
    End(usize),
    Drive(usize, u64),
    Connect(usize, u64),
    Subscribe(usize, u64),
    Hint(usize, Hint),
    Notices(usize),
    Wake(Waker),
    Trouble(usize),
    Resume(usize),
    Look,
}

struct Scheduled {
    at: u64,
    number: u64,
    event: Event,
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
    pub(super) plan: Plan,
    pub(super) processes: Vec<Process>,
    pub(super) executor: Executor,
    pub(super) server: Server,
    pub(super) links: Vec<Link>,
    pub(super) books: Rc<RefCell<Books>>,
    /// When the last trouble, or what it left, is over at the latest.
    pub(super) troubled_until: u64,
    pub(super) hints_lost_until: u64,
    /// The largest fencing number of each key.
    pub(super) fences: Vec<u64>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    number: u64,
    /// When the last late bytes are executed.
    pub(super) late_until: u64,
}

/// What came of a history.
pub(super) struct Ran {
    pub(super) violation: Option<String>,
    pub(super) steps: u64,
    pub(super) hash: u64,
    pub(super) lines: String,
    pub(super) by_sort: [u64; 64],
}

impl World {
    pub(super) fn new(plan: &Plan, keeps_lines: bool) -> Self {
        clock::set(0);
        crate::env::world::begin(0, plan.seed);
        let history = History::new(keeps_lines);
        let books = Books { history, stalled: vec![0; plan.processes.len()], ..Books::default() };
        let mut world = Self {
            plan: plan.clone(),
            processes: Vec::new(),
            executor: Executor::default(),
            server: Server::default(),
            links: Vec::new(),
            books: Rc::new(RefCell::new(books)),
            troubled_until: 0,
            hints_lost_until: 0,
            fences: vec![0; plan.keys.len()],
            queue: BinaryHeap::new(),
            number: 0,
            late_until: 0,
        };
        for index in 0..plan.processes.len() {
            world.add_process(index);
        }
        for (index, (at, _)) in plan.troubles.iter().enumerate() {
            world.at(*at, Event::Trouble(index));
        }
        world.at(50 * MILLI, Event::Look);
        world
    }

    fn add_process(&mut self, index: usize) {
        let process = Process::new(index, &self.plan, &|_| Arc::new(Unasked));
        self.executor.watch(&process.core);
        let tasks = self.plan.wishes.iter().filter(|wish| wish.process == index);
        let most = tasks.map(|wish| wish.task + 1).max().unwrap_or(0);
        for task in 0..most {
            let mine = |wish: &&super::plan::Wish| wish.process == index && wish.task == task;
            let wishes = self.plan.wishes.iter().filter(mine).cloned().collect();
            let caller = self.caller(index, &process);
            self.executor.spawn(index, caller.live(wishes));
        }
        self.processes.push(process);
    }

    pub(super) fn caller(&self, index: usize, process: &Process) -> Caller {
        Caller {
            process: index,
            locks: process.locks.clone(),
            command_timeout: self.plan.processes[index].command_timeout,
            sorts: self.plan.keys.clone(),
            books: Rc::clone(&self.books),
            calm_at: self.plan.calm_at,
        }
    }

    /// Lets an event happen at this time.
    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        let at = at.max(clock::now());
        self.queue.push(Reverse(Scheduled { at, number: self.number, event }));
    }

    pub(super) fn after(&mut self, nanos: u64, event: Event) {
        self.at(clock::now() + nanos, event);
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
        let end = self.plan.calm_at + LONGEST_SERVICE;
        while !self.is_violated() {
            if self.is_served() {
                return self.rest();
            }
            if clock::now() > end {
                return self.violated("somebody waits for ever");
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
        self.happen(next.event);
        self.react();
        self.check();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(link, seq, sent, command) => self.arrive(link, seq, sent, command),
            Event::Late(process, sent, command) => self.execute_late(process, sent, command),
            Event::Answer(link, item) => self.answer(link, item),
            Event::End(link) => self.end_link(link),
            Event::Drive(process, number) => self.drive(process, number),
            Event::Connect(process, number) => self.connect(process, number),
            Event::Subscribe(process, epoch) => self.subscribe(process, epoch),
            Event::Hint(process, hint) => self.hint(process, hint),
            Event::Notices(process) => self.carry_out(process),
            Event::Wake(waker) => waker.wake(),
            Event::Trouble(index) => {
                let (_, trouble) = self.plan.troubles[index];
                self.trouble(trouble);
            }
            Event::Resume(process) => self.resume(process),
            Event::Look => {
                self.look();
                self.after(50 * MILLI, Event::Look);
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
            for (at, waker) in executor::sleepers() {
                self.at(at, Event::Wake(waker));
            }
            for process in 0..self.processes.len() {
                self.attend(process);
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
        process.clock.enter();
        self.executor.poll(task);
    }
}

/// The network and the server.
impl World {
    /// From one end of a link to the other, the message with this number.
    fn latency(&self, link: usize, message: u64) -> u64 {
        let Link { process, ordinal, .. } = &self.links[link];
        let chance = self.chance(1 + *process as u64, *ordinal, message);
        let plain = self.plan.path.latency;
        let jitter = plain / 2 + chance % plain;
        let is_slow = clock::now() < self.plan.calm_at && chance >> 32 & 1023 < self.plan.path.slow;
        if is_slow {
            const SLOW: [u64; 8] = [30, 60, 101, 150, 480, 1_010, 2_050, 5_050];
            jitter + SLOW[(chance >> 20 & 7) as usize] * MILLI
        } else {
            jitter
        }
    }

    /// Takes what a client has sent, and notices what it has closed.
    fn transmit(&mut self, index: usize) {
        if self.links[index].state == State::Closed {
            return;
        }
        let pipe = Arc::clone(&self.links[index].pipe);
        let (sent, is_dropped) = {
            let mut pipe = lock(&pipe);
            (std::mem::take(&mut pipe.sent), pipe.is_dropped)
        };
        for (seq, command) in sent {
            self.send(index, seq, command);
        }
        if is_dropped {
            self.close(index);
        }
    }

    fn send(&mut self, index: usize, seq: u64, command: Command) {
        let now = clock::now();
        let process = self.links[index].process;
        {
            let mut books = self.books.borrow_mut();
            books.history.step(40, seq);
            books.history.line(|names| {
                let shown = super::shown::command(&command, names);
                format!("p{process} > server  q{seq} {shown}")
            });
        }
        let acquires = matches!(
            command.verb,
            crate::store::Verb::Take { .. } | crate::store::Verb::Acquire { .. }
        );
        let token = command.verb.token().filter(|_| acquires).cloned();
        self.links[index].unanswered.insert(seq, (now, token));
        self.links[index].messages += 1;
        let latency = self.latency(index, self.links[index].messages);
        let link = &mut self.links[index];
        link.up = link.up.max(now + latency);
        let (up, state, late) = (link.up, link.state, link.late_by);
        match state {
            State::Open => self.at(up, Event::Arrive(index, seq, now, Box::new(command))),
            // Nothing of it arrives, or only when nobody expects it any more.
            State::HalfOpen | State::Cut | State::Closed => {
                if let Some(late) = late {
                    self.send_late(process, up + late, now, command);
                }
            }
        }
    }

    fn send_late(&mut self, process: usize, at: u64, sent: u64, command: Command) {
        if at > sent + LATEST {
            return;
        }
        self.late_until = self.late_until.max(at);
        self.at(at, Event::Late(process, sent, Box::new(command)));
    }

    fn arrive(&mut self, index: usize, seq: u64, sent: u64, command: Box<Command>) {
        let now = clock::now();
        if now < self.server.frozen_until {
            let thawed = self.server.frozen_until;
            self.late_until = self.late_until.max(thawed);
            return self.at(thawed, Event::Arrive(index, seq, sent, command));
        }
        let process = self.links[index].process;
        if self.links[index].state != State::Open {
            if let Some(late) = self.links[index].late_by {
                // In the order of their arrival, since all are as late.
                self.send_late(process, now + late, sent, *command);
            }
            return;
        }
        let takes_another = self.chance(90, index as u64, seq) % 100 < self.plan.path.rounds;
        if takes_another && self.links[index].rounds.insert(seq) {
            return self.reply(index, Item::Again(seq, *command));
        }
        let (answer, is_broken) = self.execute(process, &command);
        {
            let mut books = self.books.borrow_mut();
            books.history.step(41, seq);
            books.history.line(|names| {
                let shown = super::shown::answer(&answer, names);
                format!("server: q{seq} of p{process}: {shown}")
            });
        }
        self.reply(index, Item::Answer(seq, answer));
        if is_broken {
            let fault = Fault::new(FaultClass::Unknown, "the server has become a replica");
            self.reply(index, Item::Broken(fault));
        }
    }

    fn execute_late(&mut self, process: usize, sent: u64, command: Box<Command>) {
        if clock::now() < self.server.frozen_until {
            let thawed = self.server.frozen_until;
            return self.send_late(process, thawed, sent, *command);
        }
        let (answer, _) = self.execute(process, &command);
        let mut books = self.books.borrow_mut();
        books.history.step(42, process as u64);
        books.history.line(|names| {
            let (command, answer) =
                (super::shown::command(&command, names), super::shown::answer(&answer, names));
            format!("server: late bytes of p{process}: {command}: {answer}")
        });
    }

    fn execute(
        &mut self,
        process: usize,
        command: &Command,
    ) -> (Result<crate::store::Answer, Fault>, bool) {
        let mut told = Vec::new();
        let manager = Arc::clone(&self.processes[process].core.manager);
        let executed = self.server.execute(command, &manager, clock::now(), &mut told);
        if let Some(what) = self.server.violation.take() {
            self.violated(what);
        }
        for (process, hint) in told {
            self.publish(process, hint);
        }
        executed
    }

    fn publish(&mut self, process: usize, hint: Hint) {
        let now = clock::now();
        let chance = self.chance(80, now, self.number);
        let is_bad = now < self.plan.calm_at && chance % 100 < self.plan.path.bad_hints;
        let latency = self.plan.path.latency / 2 + (chance >> 40) % self.plan.path.latency;
        if now < self.hints_lost_until || is_bad && chance >> 16 & 3 == 0 {
            return;
        }
        if is_bad && chance >> 16 & 3 == 1 {
            self.after(latency * 2, Event::Hint(process, hint.clone()));
        }
        let late = if is_bad && chance >> 16 & 3 == 2 { 700 * MILLI } else { 0 };
        self.after(latency + late, Event::Hint(process, hint));
    }

    fn reply(&mut self, index: usize, item: Item) {
        self.links[index].messages += 1;
        let latency = self.latency(index, self.links[index].messages);
        let link = &mut self.links[index];
        link.down = link.down.max(clock::now() + latency);
        let down = link.down;
        self.at(down, Event::Answer(index, item));
    }

    fn answer(&mut self, index: usize, item: Item) {
        let link = &mut self.links[index];
        if link.state != State::Open {
            return;
        }
        if let Item::Answer(seq, _) | Item::Again(seq, _) = &item {
            link.unanswered.remove(seq);
        }
        link.has_bad_news |= matches!(item, Item::Broken(_));
        link.spoke = clock::now();
        lock(&link.pipe).arrive(item);
        let process = link.process;
        self.books.borrow_mut().history.step(43, index as u64);
        self.drive_soon(process);
    }

    /// The client has closed a connection.
    fn close(&mut self, index: usize) {
        let now = clock::now();
        let link = &mut self.links[index];
        let was = std::mem::replace(&mut link.state, State::Closed);
        let process = link.process;
        let lost = std::mem::take(&mut link.unanswered);
        let oldest = lost.values().map(|(sent, _)| *sent).min();
        let patience = self.plan.processes[process].command_timeout.max(500 * MILLI);
        let spoke = link.spoke;
        let has_bad_news = link.has_bad_news;
        // By the clock of the process, which may run fast.
        let spoke_lately =
            now < spoke + patience * 98 / 100 && oldest.is_some_and(|sent| spoke > sent);
        let is_needless = was == State::Open && spoke_lately && !has_bad_news;
        for (_, token) in lost.into_values() {
            if let Some(token) = token {
                self.server.note(&token).is_doubtful = true;
            }
        }
        self.books.borrow_mut().history.line(|_| format!("p{process} closes connection {index}"));
        let process = &self.processes[process];
        if is_needless && !process.is_over && process.is_alive {
            self.violated("a connection was closed that had spoken within the patience");
        }
    }

    /// The network or the server ends a connection; the client learns of it after `notice`.
    pub(super) fn cut(&mut self, index: usize, late: Option<u64>, notice: u64) {
        let link = &mut self.links[index];
        if link.state != State::Open && link.state != State::HalfOpen {
            return;
        }
        (link.state, link.late_by) = (State::Cut, late);
        self.after(notice, Event::End(index));
    }

    fn end_link(&mut self, index: usize) {
        let link = &self.links[index];
        if link.state == State::Closed {
            return;
        }
        lock(&link.pipe).is_ended = true;
        let process = link.process;
        self.books.borrow_mut().history.line(|_| format!("p{process} loses connection {index}"));
        self.drive_soon(process);
    }

    fn connect(&mut self, process: usize, number: u64) {
        let now = clock::now();
        if now < self.server.loses_until {
            // Nobody answers; the engine gives up by itself.
            return;
        }
        let refused = now < self.server.refuses_until;
        let frozen = now < self.server.frozen_until;
        if frozen {
            let thawed = self.server.frozen_until;
            return self.at(thawed, Event::Connect(process, number));
        }
        if refused {
            let fault = Fault::new(FaultClass::Refused, "connection refused");
            self.processes[process].inputs.push((number, Err(fault)));
            return self.drive_soon(process);
        }
        let pipe: Shared = Arc::default();
        *lock(&pipe) = Pipe::default();
        let ordinal = self.links.iter().filter(|link| link.process == process).count() as u64;
        self.links.push(Link {
            process,
            ordinal,
            pipe: Arc::clone(&pipe),
            state: State::Open,
            up: now,
            down: now,
            messages: 0,
            unanswered: std::collections::BTreeMap::new(),
            spoke: now,
            late_by: None,
            has_bad_news: false,
            rounds: std::collections::BTreeSet::new(),
        });
        let index = self.links.len() - 1;
        self.books
            .borrow_mut()
            .history
            .line(|_| format!("p{process} has connection {index} (attempt {number})"));
        let made = Connected { wire: Box::new(SimulatedWire::new(pipe)), watcher: None };
        self.processes[process].inputs.push((number, Ok(made)));
        self.drive_soon(process);
    }
}

/// Processes.
impl World {
    /// Has the engine of a process take a turn in a moment.
    pub(super) fn drive_soon(&mut self, process: usize) {
        let sluggish = self.plan.path.sluggish;
        let delay = 5_000 + self.chance(70, clock::now(), process as u64) % sluggish;
        self.drive_at(process, clock::now() + delay);
    }

    fn drive_at(&mut self, index: usize, at: u64) {
        let process = &mut self.processes[index];
        if process.is_over || !process.is_alive || process.drive_at.is_some_and(|it| it <= at) {
            return;
        }
        process.drive_at = Some(at);
        process.drives += 1;
        let number = process.drives;
        self.at(at, Event::Drive(index, number));
    }

    fn drive(&mut self, index: usize, number: u64) {
        let process = &mut self.processes[index];
        if process.drives != number || process.is_over || !process.is_alive {
            return;
        }
        process.drive_at = None;
        if process.stands_until > clock::now() {
            return;
        }
        process.clock.enter();
        self.books.borrow_mut().history.step(44, index as u64);
        let process = &mut self.processes[index];
        let driven = process.turn();
        let (due, connects) = (process.clock.when(driven.due), driven.connects);
        let since = clock::now() - std::mem::replace(&mut process.driven_at, clock::now());
        process.spins = if since < MILLI { process.spins + 1 } else { process.spins / 2 };
        if process.spins > 500 {
            let (now, wanted) = (crate::clock::Moment::now(), process.core.wanted_by());
            let soon = now.after(std::time::Duration::from_micros(10));
            let by: Vec<_> = wanted.iter().filter(|(_, at)| *at <= soon).map(|it| it.0).collect();
            return self.violated(format!("the engine turns without an end, because of {by:?}"));
        }
        for number in connects {
            // A connection takes some round trips: it is made, introduces itself and looks around.
            let delay = self.plan.path.latency * 6 + self.chance(60, number, index as u64) % MILLI;
            self.after(delay, Event::Connect(index, number));
        }
        if driven.is_done {
            return self.finish(index);
        }
        self.follow_epoch(index);
        // A thread never wakes at the very moment.
        self.drive_at(index, due.saturating_add(1_000));
    }

    /// The engine of a process has nothing left to do.
    fn finish(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.clock.enter();
        process.core.stop();
        process.is_over = true;
        let manager = Arc::clone(&process.core.manager);
        self.server.subscribers.remove(&manager);
        self.books.borrow_mut().history.line(|_| format!("p{index} has ended"));
        self.check_farewell(index);
    }

    /// Listens beside the connection that stands now.
    fn follow_epoch(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let epoch = process.core.path.traffic().epoch();
        if epoch == process.epoch {
            return;
        }
        process.epoch = epoch;
        let manager = Arc::clone(&process.core.manager);
        if self.server.subscribers.remove(&manager).is_some() || process.is_listening {
            self.stop_listening(index);
        }
        if let Some(epoch) = epoch {
            let delay = self.plan.path.latency * 4;
            self.after(delay, Event::Subscribe(index, epoch));
        }
    }

    pub(super) fn stop_listening(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.is_listening = false;
        process.hints.push(Hint::Listening { told: false });
        self.drive_soon(index);
    }

    fn subscribe(&mut self, index: usize, epoch: u64) {
        let now = clock::now();
        let process = &self.processes[index];
        if process.epoch != Some(epoch) || process.is_over || !process.is_alive {
            return;
        }
        let busy = [self.server.frozen_until, self.server.refuses_until, self.server.loses_until];
        let until = busy.into_iter().max().unwrap_or(0).max(process.deaf_until);
        if now < until {
            return self.at(until + 50 * MILLI, Event::Subscribe(index, epoch));
        }
        let manager = Arc::clone(&process.core.manager);
        self.server.subscribers.insert(manager, index);
        self.processes[index].is_listening = true;
        let latency = self.plan.path.latency;
        self.after(latency, Event::Hint(index, Hint::Listening { told: true }));
    }

    fn hint(&mut self, index: usize, hint: Hint) {
        let process = &mut self.processes[index];
        if process.is_over || !process.is_alive || !process.is_listening {
            return;
        }
        process.hints.push(hint);
        self.books.borrow_mut().history.step(45, index as u64);
        self.drive_soon(index);
    }

    /// Looks whether the engine of a process wants a turn, or has something to tell.
    fn attend(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if !process.is_alive {
            return;
        }
        if process.core.bell.take() {
            self.drive_soon(index);
        }
        let process = &mut self.processes[index];
        if !process.tells_soon && process.core.has_notices() {
            process.tells_soon = true;
            let delay = self.chance(71, clock::now(), index as u64) % self.plan.path.sluggish;
            self.after(1_000 + delay, Event::Notices(index));
        }
    }

    fn carry_out(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if !process.is_alive {
            return;
        }
        if process.tasks_stand_until() > clock::now() {
            let until = process.tasks_stand_until();
            return self.at(until, Event::Notices(index));
        }
        process.tells_soon = false;
        process.clock.enter();
        process.core.carry_out_all();
    }

    fn resume(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if process.tasks_stand_until() > clock::now() {
            return;
        }
        for task in std::mem::take(&mut process.stood) {
            self.executor.put_back(task);
        }
        if process.stands_until <= clock::now() {
            process.drive_at = None;
            self.drive_soon(index);
        }
    }
}

/// Troubles.
impl World {
    fn trouble(&mut self, trouble: Trouble) {
        let now = clock::now();
        {
            let mut books = self.books.borrow_mut();
            books.history.step(50, now);
            books.history.line(|_| format!("-- {trouble:?}"));
        }
        self.troubled_until = self.troubled_until.max(now + trouble.lasts() + 8 * SECOND);
        match trouble {
            Trouble::Cut { process, late } => {
                if let Some(link) = self.link_of(process) {
                    let notice = self.chance(51, now, 0) % (40 * MILLI);
                    self.cut(link, late, notice);
                }
            }
            Trouble::HalfOpen { process, late } => {
                if let Some(link) = self.link_of(process) {
                    self.links[link].state = State::HalfOpen;
                    self.links[link].late_by = late;
                }
            }
            Trouble::Stall { process, lasts } => {
                if let Some(link) = self.link_of(process) {
                    let link = &mut self.links[link];
                    link.up = link.up.max(now + lasts);
                    link.down = link.down.max(now + lasts);
                    self.late_until = self.late_until.max(now + lasts);
                }
            }
            Trouble::Frozen { lasts } => {
                self.server.frozen_until = self.server.frozen_until.max(now + lasts);
            }
            Trouble::RefuseConnects { lasts } => {
                self.server.refuses_until = self.server.refuses_until.max(now + lasts);
            }
            Trouble::LoseConnects { lasts } => {
                self.server.loses_until = self.server.loses_until.max(now + lasts);
            }
            Trouble::Refuse { why, lasts } => self.server.refuse(why, now + lasts),
            Trouble::Restart { keeps_data, lasts } => self.restart(keeps_data, lasts),
            Trouble::Flush => self.flush(),
            Trouble::ServerClock { forward, by } => {
                self.server.jump(forward, by, now);
                self.troubled_until += by;
            }
            Trouble::Pause { process, lasts } => {
                self.stand(process, lasts);
                self.processes[process].stands_until = now + lasts;
            }
            Trouble::Block { process, lasts } => {
                self.stand(process, lasts);
                self.processes[process].blocks_until = now + lasts;
            }
            Trouble::Kill { process } => self.kill(process),
            Trouble::Fork { process } => self.fork(process),
            Trouble::Shutdown { process } => {
                if self.processes[process].is_alive {
                    let caller = self.caller(process, &self.processes[process]);
                    self.processes[process].is_closing = true;
                    self.executor.spawn(process, caller.shut_down());
                }
            }
            Trouble::LoseHints { lasts } => self.hints_lost_until = now + lasts,
            Trouble::Deafen { process, lasts } => self.deafen(process, lasts),
            Trouble::Forge { process } => self.forge(process),
        }
    }

    fn link_of(&self, process: usize) -> Option<usize> {
        let open = |link: &Link| link.process == process && link.state == State::Open;
        self.links.iter().rposition(open)
    }

    fn stand(&mut self, index: usize, lasts: u64) {
        let now = clock::now();
        let before = self.processes[index].tasks_stand_until().max(now);
        let more = (now + lasts).saturating_sub(before);
        // What a call loses to this counts by the clock of the process, which may run faster.
        self.books.borrow_mut().stalled[index] += more + more / 50 + 20 * MILLI;
        self.at(now + lasts, Event::Resume(index));
    }

    fn restart(&mut self, keeps_data: bool, lasts: u64) {
        for link in 0..self.links.len() {
            self.cut(link, None, MILLI);
        }
        self.server.refuses_until = self.server.refuses_until.max(clock::now() + lasts);
        self.server.subscribers.clear();
        for process in 0..self.processes.len() {
            if self.processes[process].is_listening {
                self.deafen(process, lasts);
            }
        }
        if !keeps_data {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.server.flush(clock::now());
        self.fences.iter_mut().for_each(|fence| *fence = 0);
    }

    fn kill(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if !process.is_alive {
            return;
        }
        process.is_alive = false;
        let manager = Arc::clone(&process.core.manager);
        for link in 0..self.links.len() {
            if self.links[link].process == index {
                self.cut(link, None, MILLI);
            }
        }
        self.server.subscribers.remove(&manager);
        let mut books = self.books.borrow_mut();
        books.calls.retain(|call| call.process != index);
        books.holds.retain(|note| note.process != index);
        drop(books);
        let tasks = self.executor.remove(index);
        self.processes[index].corpses = tasks;
    }

    fn fork(&mut self, index: usize) {
        let process = &self.processes[index];
        if !process.is_alive || process.is_over {
            return;
        }
        crate::env::world::set_now(process.clock.at(clock::now()));
        crate::env::world::set_process(process.clock.process + 1_000);
        let seen = super::caller::look_from_child(&self.books.borrow(), index);
        let asked = process.locks.mutex("child").acquire().now_or_never();
        process.clock.enter();
        if let Err(what) = seen {
            self.violated(what);
        }
        if !matches!(asked, Some(Err(crate::LockError::Shutdown))) {
            self.violated("a child used the locks of its parent");
        }
    }

    fn deafen(&mut self, index: usize, lasts: u64) {
        let manager = Arc::clone(&self.processes[index].core.manager);
        self.server.subscribers.remove(&manager);
        let until = clock::now() + lasts;
        self.processes[index].deaf_until = until;
        if let Some(epoch) = self.processes[index].epoch {
            self.at(until, Event::Subscribe(index, epoch));
        }
        if self.processes[index].is_listening {
            self.stop_listening(index);
        }
    }

    /// Somebody publishes what is not true.
    fn forge(&mut self, index: usize) {
        let now = clock::now();
        let present = self.server.present(now);
        let chosen = present.get(self.chance(52, now, 0) as usize % present.len().max(1));
        let Some((key, token)) = chosen else { return };
        let (key, token) = ((*key).to_owned(), token.to_string());
        let hint = match self.chance(53, now, 0) % 3 {
            0 => Hint::Granted { token, waited_for: true },
            1 => Hint::WaitedFor { key },
            _ => Hint::Forced { token },
        };
        self.after(MILLI, Event::Hint(index, hint));
    }
}

/// How a history ends.
impl World {
    /// Everybody is served and no guard is left.
    fn rest(&mut self) {
        let now = clock::now();
        self.pass_until(now.max(self.server.frozen_until) + 2 * SECOND);
        self.check_left_tokens();
        let jumps = self.plan.troubles.iter().map(|(_, trouble)| match trouble {
            Trouble::ServerClock { forward: false, by } => *by,
            _ => 0,
        });
        let longest = self.plan.longest() + jumps.sum::<u64>() + 9 * SECOND;
        self.pass_until(clock::now() + longest);
        self.check_litter();
        for _ in 0..20 {
            if self.is_violated() || self.processes.iter().all(Process::is_at_rest) {
                return;
            }
            self.pass_until(clock::now() + 97 * MILLI);
        }
        self.violated("something is left in a table, an index or a queue");
    }

    /// What came of a history that a panic ended. What is left of it is never touched again.
    pub(super) fn abandoned(self) -> Ran {
        let ran = self.ran();
        std::mem::forget(self);
        ran
    }

    fn ran(&self) -> Ran {
        let mut books = self.books.borrow_mut();
        if let Some(what) = books.violation.clone() {
            books.history.line(|_| format!("VIOLATED: {what}"));
        }
        Ran {
            violation: books.violation.clone(),
            steps: books.history.steps,
            hash: books.history.hash(),
            lines: books.history.to_string(),
            by_sort: books.history.by_sort,
        }
    }

    /// Takes everything apart.
    pub(super) fn end(mut self) -> Ran {
        let ran = self.ran();
        for process in &mut self.processes {
            process.clock.enter();
            let tasks = self.executor.remove(process.index);
            drop((tasks, std::mem::take(&mut process.corpses)));
            process.bury();
        }
        drop(executor::sleepers());
        crate::env::world::end();
        ran
    }
}
