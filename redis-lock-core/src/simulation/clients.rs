//! Processes, the network between them and the server, and what must always hold.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Planted;
use super::random::Random;
use super::server::Server;
use crate::LockState;
use crate::Wait;
use crate::clock::Moment;
use crate::demand::{self, Demand};
use crate::error::{Fault, FaultClass};
use crate::hold::Hold;
use crate::slot::{Act, Reap, Slot, Waiter, World};
use crate::store::{Answer, Command, Verb};

const CLIENTS: usize = 4;
const TASKS: u64 = 3;
const TTL: Duration = Duration::from_millis(1_500);

/// Longer than this nobody may go without the lock while somebody wants it, all being well.
const STRAND: Duration = Duration::from_millis(2_600);

/// The same while nothing but subscriptions breaks.
const CALM_STRAND: Duration = Duration::from_millis(500);

type Task = u64;

enum Happening {
    /// A task wants the lock.
    Want(usize, Task),
    /// A task has waited enough.
    GiveUp(usize, Task),
    /// A task is done with it.
    Done(usize, Task),
    /// A command reaches the server.
    Arrive {
        client: usize,
        epoch: u32,
        command: Command,
        sent: Moment,
        reap: bool,
    },
    /// An answer reaches a client.
    Answer {
        client: usize,
        epoch: u32,
        command: Command,
        sent: Moment,
        answer: Answer,
        reap: bool,
    },
    /// A grant reaches a client.
    Told {
        client: usize,
        subscription: u32,
        token: String,
    },
    Tick(usize),
    /// The connection of a client breaks.
    Cut(usize),
    /// The subscription of a client breaks, and is there again.
    Deaf(usize),
    Listening(usize, u32),
    /// A release is tried again.
    Retry(usize, u32, usize),
    Crash(usize),
    Pause(usize, Duration),
}

struct Client {
    slot: Slot<Task>,
    name: Arc<str>,
    /// Counts connections.
    epoch: u32,
    /// Counts lives of the process.
    life: u32,
    subscription: Option<u32>,
    subscriptions: u32,
    /// Does not run before this.
    stopped_until: Moment,
    holds: HashMap<Task, Arc<Hold>>,
    /// What is on its way, in order: its last arrival time, and last answer time.
    last_up: Moment,
    last_down: Moment,
    open: Vec<(Command, Moment, bool)>,
    reaps: Vec<Option<Reap>>,
}

pub(super) struct Simulation {
    planted: Planted,
    random: Random,
    now: Moment,
    agenda: BTreeMap<(Moment, u64), Happening>,
    number: u64,
    server: Server,
    clients: Vec<Client>,
    /// All holds that were ever granted and may still be valid, newest last.
    holds: Vec<Arc<Hold>>,
    last_fence: u64,
    grants: u64,
    unserved_since: Option<Moment>,
    calm: bool,
    abandoning: bool,
    ending: Moment,
}

impl Simulation {
    pub(super) fn new(seed: u64, planted: Planted) -> Self {
        let mut simulation = Self {
            planted,
            random: Random::new(seed),
            now: Moment::START.after(Duration::from_secs(1_000)),
            agenda: BTreeMap::new(),
            number: 0,
            server: Server::new(planted),
            clients: Vec::new(),
            holds: Vec::new(),
            last_fence: 0,
            grants: 0,
            unserved_since: None,
            // Every fourth run has hardly any faults, and stricter bounds.
            calm: seed.is_multiple_of(4),
            abandoning: false,
            ending: Moment::NEVER,
        };
        for index in 0..CLIENTS {
            simulation.clients.push(Client::new(index, 0));
            simulation.subscribe(index);
            for task in 0..TASKS {
                let at = simulation.random.micros(0, 400_000);
                simulation.later(at, Happening::Want(index, task));
            }
        }
        simulation
    }

    pub(super) fn run(&mut self, length: Duration) -> Result<u64, String> {
        let end = self.now.after(length);
        self.ending = end;
        self.plan_faults(length);
        // After the end everybody gives back what they have, and the rest runs out.
        let quiet = end.after(Duration::from_secs(12));
        while let Some(((at, _), happening)) = self.agenda.pop_first() {
            if at > quiet {
                break;
            }
            self.now = self.now.max(at);
            self.happen(happening)?;
            self.check_progress()?;
        }
        self.now = quiet;
        match self.server.leftover(self.now) {
            Some(left) => Err(format!("left behind: {left}")),
            None => Ok(self.grants),
        }
    }

    fn plan_faults(&mut self, length: Duration) {
        let span = u64::try_from(length.as_micros()).unwrap_or(1);
        if self.calm {
            // Subscriptions come and go, which must cost nobody more than the time they are gone.
            for _ in 0..60 {
                let (at, client) = (self.random.micros(0, span), self.random.below(4) as usize);
                self.later(at, Happening::Deaf(client));
            }
            return;
        }
        for _ in 0..25 {
            let (at, client) = (self.random.micros(0, span), self.random.below(4) as usize);
            let fault = match self.random.below(6) {
                0 | 1 => Happening::Cut(client),
                2 | 3 => Happening::Deaf(client),
                4 => Happening::Crash(client),
                _ => Happening::Pause(client, self.random.micros(10_000, 3_000_000)),
            };
            self.later(at, fault);
        }
    }

    fn later(&mut self, after: Duration, happening: Happening) {
        self.at(self.now.after(after), happening);
    }

    fn at(&mut self, at: Moment, happening: Happening) {
        self.number += 1;
        self.agenda.insert((at, self.number), happening);
    }

    /// Whether a client runs; what happens to one that is stopped happens when it runs again.
    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        let client = match &happening {
            Happening::Want(client, _)
            | Happening::GiveUp(client, _)
            | Happening::Done(client, _)
            | Happening::Answer { client, .. }
            | Happening::Told { client, .. }
            | Happening::Listening(client, _)
            | Happening::Retry(client, _, _)
            | Happening::Tick(client) => Some(*client),
            _ => None,
        };
        if let Some(client) = client
            && self.clients[client].stopped_until > self.now
        {
            self.at(self.clients[client].stopped_until, happening);
            return Ok(());
        }
        match happening {
            Happening::Want(client, task) => self.want(client, task),
            Happening::GiveUp(client, task) => {
                self.abandoning = true;
                let given_up = self.change(client, |slot, world, acts| {
                    slot.cancel(task, world, acts);
                });
                self.abandoning = false;
                given_up
            }
            Happening::Done(client, task) => self.done(client, task),
            Happening::Arrive { client, epoch, command, sent, reap } => {
                self.arrive(client, epoch, command, sent, reap);
                Ok(())
            }
            Happening::Answer { client, epoch, command, sent, answer, reap } => {
                if self.clients[client].epoch != epoch {
                    return Ok(());
                }
                let open = &mut self.clients[client].open;
                if !open.is_empty() {
                    open.remove(0);
                }
                self.answered(client, &command, sent, Ok(answer), reap)
            }
            Happening::Told { client, subscription, token } => {
                if self.clients[client].subscription != Some(subscription) {
                    return Ok(());
                }
                self.change(client, |slot, world, acts| {
                    if slot.contends_as(&token) {
                        slot.hinted(world, acts);
                    }
                })
            }
            Happening::Tick(client) => self.change(client, Slot::tick),
            Happening::Cut(client) => self.cut(client),
            Happening::Deaf(client) => {
                self.clients[client].subscription = None;
                self.subscribe(client);
                Ok(())
            }
            Happening::Listening(client, subscription) => {
                if self.clients[client].subscriptions != subscription {
                    return Ok(());
                }
                self.clients[client].subscription = Some(subscription);
                if self.planted == Planted::NoLookAfterSubscribing {
                    return Ok(());
                }
                self.change(client, Slot::hinted)
            }
            Happening::Retry(client, life, index) => {
                if self.clients[client].life == life {
                    self.release(client, index);
                }
                Ok(())
            }
            Happening::Crash(client) => {
                self.crash(client);
                Ok(())
            }
            Happening::Pause(client, length) => {
                self.clients[client].stopped_until = self.now.after(length);
                Ok(())
            }
        }
    }

    fn want(&mut self, client: usize, task: Task) -> Result<(), String> {
        if self.now >= self.ending {
            return Ok(());
        }
        let bounded = self.random.once_in(6);
        let wait = if bounded { Wait::For(Duration::from_millis(300)) } else { Wait::Forever };
        let fenced = self.random.once_in(3);
        let demand = Demand { ttl: Some(TTL), wait, fenced, ..demand::tests::demand("k") };
        let now = self.now;
        if self.random.once_in(8) {
            let at = self.random.micros(100, 200_000);
            self.later(at, Happening::GiveUp(client, task));
            let again = self.random.micros(300_000, 900_000);
            self.later(again, Happening::Want(client, task + 100));
        }
        self.change(client, |slot, world, acts| {
            let waiter = Waiter { id: task, handle: task, demand: Arc::new(demand), asked: now };
            slot.ask(waiter, world, acts);
        })
    }

    fn done(&mut self, client: usize, task: Task) -> Result<(), String> {
        let Some(hold) = self.clients[client].holds.remove(&task) else { return Ok(()) };
        let again = self.random.micros(0, 300_000);
        self.later(again, Happening::Want(client, task));
        self.change(client, |slot, world, acts| slot.release(&hold, None, world, acts))
    }

    fn change(
        &mut self,
        client: usize,
        change: impl FnOnce(&mut Slot<Task>, &World, &mut Vec<Act<Task>>),
    ) -> Result<(), String> {
        let world = World {
            now: self.now,
            told: self.clients[client].subscription.is_some(),
            manager: Arc::clone(&self.clients[client].name),
            spread: self.random.below(256) as u8,
        };
        let mut acts = Vec::new();
        let one = &mut self.clients[client];
        change(&mut one.slot, &world, &mut acts);
        let due = one.slot.due(self.now);
        if due != Moment::NEVER {
            self.at(due.max(self.now.after(Duration::from_micros(1))), Happening::Tick(client));
        }
        for act in acts {
            match act {
                Act::Send(command) => self.send(client, command, false),
                Act::Grant(task, hold) => self.granted(client, task, hold)?,
                Act::Fail(task, _) => {
                    let again = self.random.micros(50_000, 500_000);
                    self.later(again, Happening::Want(client, task));
                }
                Act::Reap(_) if self.abandoning && self.planted == Planted::NoReaping => {}
                Act::Reap(reap) => {
                    self.clients[client].reaps.push(Some(reap));
                    self.release(client, self.clients[client].reaps.len() - 1);
                }
                Act::Lost(_) | Act::Contended(..) => {}
                Act::Wake(at) => self.at(at, Happening::Tick(client)),
            }
        }
        Ok(())
    }

    fn granted(&mut self, client: usize, task: Task, hold: Arc<Hold>) -> Result<(), String> {
        let now = self.now;
        self.grants += 1;
        self.unserved_since = None;
        self.holds.retain(|other| other.state(now) == LockState::Held);
        if let Some(other) = self.holds.first() {
            return Err(format!(
                "two valid holds at {now:?}: {:?} and {:?}",
                other.token, hold.token
            ));
        }
        if let Some(fence) = hold.fence {
            if fence <= self.last_fence {
                return Err(format!("fence {fence} after {}", self.last_fence));
            }
            self.last_fence = fence;
        }
        self.holds.push(Arc::clone(&hold));
        self.clients[client].holds.insert(task, hold);
        let most = if self.random.once_in(20) { 4_000_000 } else { 60_000 };
        let length = self.random.micros(100, most);
        self.later(length, Happening::Done(client, task));
        Ok(())
    }

    fn send(&mut self, client: usize, command: Command, reap: bool) {
        let delay = self.random.micros(50, 2_000);
        let one = &mut self.clients[client];
        let at = self.now.after(delay).max(one.last_up);
        one.last_up = at;
        one.open.push((command.clone(), self.now, reap));
        let (epoch, sent) = (one.epoch, self.now);
        self.at(at, Happening::Arrive { client, epoch, command, sent, reap });
    }

    fn release(&mut self, client: usize, index: usize) {
        if let Some(reap) = &self.clients[client].reaps[index] {
            let command = reap.command.clone();
            self.send(client, command, true);
        }
    }

    fn arrive(&mut self, client: usize, epoch: u32, command: Command, sent: Moment, reap: bool) {
        let listener = self.clients[client].subscription.map(|_| client);
        let listening: Vec<bool> =
            self.clients.iter().map(|client| client.subscription.is_some()).collect();
        let heard = |client: usize| listening[client];
        let answer = self.server.execute(&command, listener, &heard, self.now);
        if let Some((told, token)) = self.server.published.take()
            && let Some(subscription) = self.clients[told].subscription
        {
            let delay = self.random.micros(50, 2_000);
            self.later(delay, Happening::Told { client: told, subscription, token });
        }
        if self.clients[client].epoch == epoch {
            let slow = if self.calm { 2_000 } else { 40_000 };
            let delay = self.random.micros(50, slow);
            let at = self.now.after(delay).max(self.clients[client].last_down);
            self.clients[client].last_down = at;
            self.at(at, Happening::Answer { client, epoch, command, sent, answer, reap });
        }
    }

    fn answered(
        &mut self,
        client: usize,
        command: &Command,
        sent: Moment,
        answer: Result<Answer, Fault>,
        reap: bool,
    ) -> Result<(), String> {
        if reap {
            self.reaped(client, command, answer.is_ok());
            return Ok(());
        }
        let sent = if self.planted == Planted::LeaseFromAnswer { self.now } else { sent };
        self.change(client, |slot, world, acts| match command.verb {
            Verb::Yield { .. } => slot.yielded(command, sent, answer, world, acts),
            Verb::Renew { .. } | Verb::Check { .. } => {
                slot.renewed(command, sent, &answer, world, acts);
            }
            _ => slot.asked(command, sent, answer, world, acts),
        })
    }

    fn reaped(&mut self, client: usize, command: &Command, done: bool) {
        let (now, life) = (self.now, self.clients[client].life);
        let reaps = &mut self.clients[client].reaps;
        let matches = |reap: &Option<Reap>| {
            reap.as_ref().is_some_and(|reap| reap.command.verb.token() == command.verb.token())
        };
        let Some(index) = reaps.iter().position(matches) else { return };
        let over = reaps[index].as_ref().is_none_or(|reap| now >= reap.until || !reap.doubtful);
        if done && over {
            reaps[index] = None;
        } else {
            self.later(Duration::from_millis(100), Happening::Retry(client, life, index));
        }
    }

    /// The connection breaks: what has not arrived may arrive late or never, answers are lost.
    fn cut(&mut self, client: usize) -> Result<(), String> {
        self.break_connection(client);
        let open = std::mem::take(&mut self.clients[client].open);
        for (command, sent, reap) in open {
            let fault = Fault::new(FaultClass::Unknown, "cut");
            self.answered(client, &command, sent, Err(fault), reap)?;
        }
        self.change(client, |slot, world, acts| {
            slot.hinted(world, acts);
            slot.doubt(world, acts);
        })
    }

    fn break_connection(&mut self, client: usize) {
        let old = self.clients[client].epoch;
        self.clients[client].epoch += 1;
        self.clients[client].last_up = self.now;
        self.clients[client].last_down = self.now;
        let late: Vec<_> = self
            .agenda
            .iter()
            .filter(|(_, happening)| {
                matches!(happening, Happening::Arrive { client: of, epoch, .. }
                    if *of == client && *epoch == old)
            })
            .map(|(at, _)| *at)
            .collect();
        for at in late {
            let happening = self.agenda.remove(&at);
            // Half of it is lost, the other half arrives up to a second later.
            if let Some(happening) = happening.filter(|_| self.random.once_in(2)) {
                let delay = self.random.micros(100, 1_000_000);
                self.later(delay, happening);
            }
        }
    }

    fn crash(&mut self, client: usize) {
        self.break_connection(client);
        let (epoch, life) = (self.clients[client].epoch, self.clients[client].life + 1);
        let subscriptions = self.clients[client].subscriptions;
        // The dead process' holds are nobody's: it does nothing under them any more.
        for hold in self.clients[client].holds.values() {
            hold.release(self.now);
        }
        let gone: Vec<_> = self
            .agenda
            .iter()
            .filter(|(_, happening)| match happening {
                Happening::Want(of, _)
                | Happening::GiveUp(of, _)
                | Happening::Done(of, _)
                | Happening::Tick(of) => *of == client,
                _ => false,
            })
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            self.agenda.remove(&at);
        }
        self.clients[client] = Client { epoch, subscriptions, ..Client::new(client, life) };
        self.subscribe(client);
        for task in 0..TASKS {
            let at = self.random.micros(100_000, 900_000);
            self.later(at, Happening::Want(client, task));
        }
    }

    fn subscribe(&mut self, client: usize) {
        self.clients[client].subscriptions += 1;
        let subscription = self.clients[client].subscriptions;
        let delay = self.random.micros(200, 50_000);
        self.later(delay, Happening::Listening(client, subscription));
    }

    /// Somebody who wants the lock gets it in bounded time while nobody has it.
    fn check_progress(&mut self) -> Result<(), String> {
        let now = self.now;
        let valid = self.holds.iter().any(|hold| hold.state(now) == LockState::Held);
        let stopped = self.clients.iter().any(|client| client.stopped_until > now);
        let wanted = self.clients.iter().any(|client| client.slot.waits());
        if valid || stopped || !wanted {
            self.unserved_since = None;
            return Ok(());
        }
        let since = *self.unserved_since.get_or_insert(now);
        // A crashed holder's lease has to run out first; in calm runs nobody crashes.
        let bound = if self.calm { CALM_STRAND } else { TTL + STRAND };
        if now.since(since) > bound {
            return Err(format!(
                "nobody served from {since:?} to {now:?}; the server says {:?}",
                self.server.holder(now)
            ));
        }
        Ok(())
    }
}

impl Client {
    fn new(index: usize, life: u32) -> Self {
        Self {
            slot: Slot::new(),
            name: format!("c{index}l{life}").into(),
            epoch: 0,
            life,
            subscription: None,
            subscriptions: 0,
            stopped_until: Moment::START,
            holds: HashMap::new(),
            last_up: Moment::START,
            last_down: Moment::START,
            open: Vec::new(),
            reaps: Vec::new(),
        }
    }
}
