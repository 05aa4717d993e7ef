//! The messages between processes and the server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::nodes::{Verdict, node_of};
use super::{World, WorldEvent};
use crate::domain::fault::{Fault, FaultClass};
use crate::engine::places::{FIRST, PlaceId};
use crate::simulation::clock::{self, MILLI};
use crate::simulation::deviation::{AGAIN, Deviation, LATE, MessageSort};
use crate::simulation::key_space::goes_on_link;
use crate::simulation::network::{LinkState, NetworkLink, SimulatedWire};
use crate::simulation::pipe::{Filling, Item, Noticed, Pipe, Sent, SharedPipe, lock, notice};
use crate::store::{Answer, Command, Connected, Event as Hint, Verb};

/// How long after their sending bytes can be executed at the latest: as long as a place lasts.
const LATEST: u64 = 4_900 * MILLI;

/// A command that a node executes after its connection has ended.
pub(super) struct LateBytes {
    pub(super) process: usize,
    pub(super) node: usize,
    pub(super) asking: bool,
    pub(super) sent: u64,
    pub(super) command: Command,
}

impl World {
    /// From one end of a link to the other, the message with this number.
    pub(super) fn latency(&self, link: usize, message: u64) -> u64 {
        let NetworkLink { process, ordinal, .. } = &self.links[link];
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
    pub(super) fn transmit(&mut self, index: usize) {
        if self.links[index].state == LinkState::Closed {
            return;
        }
        let pipe = Arc::clone(&self.links[index].pipe);
        let (sent, is_dropped, delays, full_until) = {
            let mut pipe = lock(&pipe);
            let (sent, delays) = (std::mem::take(&mut pipe.sent), std::mem::take(&mut pipe.delays));
            (sent, pipe.is_dropped, delays, pipe.begins_to_be_full())
        };
        if let Some(until) = full_until {
            self.at(until, WorldEvent::Writable(index));
        }
        delays.into_iter().for_each(|delay| self.check_delay(index, delay));
        for sent in sent {
            match sent {
                Sent::Command(seq, command) => self.send(index, seq, command),
                Sent::Asking(seq, command) => {
                    self.links[index].asking.insert(seq);
                    self.send(index, seq, command);
                }
                Sent::Failed(seq) => self.owes_again(index, seq),
            }
        }
        if is_dropped {
            self.close(index);
        }
    }

    /// The client knows that the command may not have been executed: if it was a release, it has to
    /// be sent again.
    fn owes_again(&mut self, index: usize, seq: u64) {
        let node = self.links[index].node;
        if let Some(token) = self.links[index].releases.remove(&seq) {
            // It may have been sent to another node since.
            self.server.note(&token).leaving.take_if(|to| *to == node);
        }
    }

    pub(super) fn send(&mut self, index: usize, seq: u64, command: Command) {
        let now = clock::now();
        let process = self.links[index].process;
        let to = self.shown_node(self.links[index].node);
        {
            let mut books = self.books.borrow_mut();
            books.history.step(40, seq);
            books.history.line(|names| {
                let shown = crate::simulation::shown::command(&command, names);
                format!("p{process} > {to}  q{seq} {shown}")
            });
        }
        let acquires = command.verb.acquires();
        let token = command.verb.token().filter(|_| acquires).cloned();
        self.check_order((index, seq), &command, acquires);
        if let Some(token) = command.verb.token() {
            self.promptness.ask(token);
        }
        if let Verb::Release { token, .. } = &command.verb {
            self.links[index].releases.insert(seq, Arc::clone(token));
        }
        self.links[index].unanswered.insert(seq, (now, token));
        self.links[index].messages += 1;
        let latency = self.latency(index, self.links[index].messages);
        let link = &mut self.links[index];
        link.up = link.up.max(now + latency);
        // Whether a message gets through is decided when it would arrive, so that late bytes keep
        // their order as well.
        link.under_way.push_back((seq, now, Box::new(command)));
        let deviation = self.deviation(MessageSort::Command, process);
        if deviation == Some(Deviation::Late) {
            self.links[index].up += LATE;
            self.late_until = self.late_until.max(self.links[index].up);
        }
        let up = self.links[index].up;
        self.at(up, WorldEvent::Arrive(index));
        match deviation {
            Some(Deviation::Lost) => self.cut(index, None, MILLI),
            Some(Deviation::Twice) => self.cut(index, Some(AGAIN), MILLI),
            _ => {}
        }
    }

    pub(super) fn send_late(&mut self, at: u64, bytes: LateBytes) {
        if at > bytes.sent + LATEST {
            return;
        }
        self.late_until = self.late_until.max(at);
        self.at(at, WorldEvent::Late(Box::new(bytes)));
    }

    /// The next command on a link arrives: always the oldest, so that one that would arrive at the
    /// very end of a freeze does not pass those that wait for this end.
    pub(super) fn arrive(&mut self, index: usize) {
        let now = clock::now();
        let (process, node) = (self.links[index].process, self.links[index].node);
        let thawed = self.frozen_until(node);
        if now < thawed {
            self.late_until = self.late_until.max(thawed);
            return self.at(thawed, WorldEvent::Arrive(index));
        }
        let Some((seq, sent, command)) = self.links[index].under_way.pop_front() else { return };
        let asking = self.links[index].asking.contains(&seq);
        if self.links[index].state != LinkState::Open {
            if let Some(late) = self.links[index].late_by {
                // In the order of their arrival, since all are as late.
                let bytes = LateBytes { process, node, asking, sent, command: *command };
                self.send_late(now + late, bytes);
            }
            return;
        }
        let takes_another = self.chance(90, index as u64, seq) % 100 < self.plan.path.rounds;
        if takes_another && self.links[index].rounds.insert(seq) {
            return self.reply(index, Item::Again(seq, *command));
        }
        if self.is_answered_too_late(index, seq, sent, &command) {
            return;
        }
        if self.is_without_scripts() && !goes_on_link(&command.verb) {
            return self.begin_transaction(index, seq, *command);
        }
        let answer = match self.verdict(node, asking, &command) {
            Verdict::Executes => self.execute(process, node, &command),
            Verdict::Refuses(fault) => (Err(fault), false),
            Verdict::Deposed(fault) => (Err(fault), true),
            Verdict::Redirects(redirect) => return self.redirect(index, seq, *command, redirect),
        };
        let (answer, is_broken) = answer;
        let answer = self.confirmed((index, seq), &command, answer);
        {
            let mut books = self.books.borrow_mut();
            books.history.step(41, seq);
            books.history.line(|names| {
                let shown = crate::simulation::shown::answer(&answer, names);
                format!("server: q{seq} of p{process}: {shown}")
            });
        }
        self.reply(index, Item::Answer(seq, answer));
        if is_broken {
            let fault = Fault::new(FaultClass::Unknown, "the server has become a replica");
            self.reply(index, Item::Broken(fault));
        }
    }

    pub(super) fn execute_late(&mut self, bytes: LateBytes) {
        let thawed = self.frozen_until(bytes.node);
        if clock::now() < thawed {
            return self.send_late(thawed, bytes);
        }
        let LateBytes { process, node, asking, command, .. } = bytes;
        let Verdict::Executes = self.verdict(node, asking, &command) else { return };
        let (answer, _) = self.execute(process, node, &command);
        let mut books = self.books.borrow_mut();
        books.history.step(42, process as u64);
        books.history.line(|names| {
            let (command, answer) = (
                crate::simulation::shown::command(&command, names),
                crate::simulation::shown::answer(&answer, names),
            );
            format!("server: late bytes of p{process}: {command}: {answer}")
        });
    }

    pub(super) fn execute(
        &mut self,
        process: usize,
        node: usize,
        command: &Command,
    ) -> (Result<Answer, Fault>, bool) {
        let mut messages = Vec::new();
        let manager = Arc::clone(&self.processes[process].core.manager);
        let executed = self.server.execute(command, (node, &manager), clock::now(), &mut messages);
        if let Some(what) = self.server.violation.take() {
            self.violated(what);
        }
        for (process, hint) in messages {
            self.publish(process, node, hint);
        }
        executed
    }

    pub(super) fn publish(&mut self, process: usize, node: usize, hint: Hint) {
        let now = clock::now();
        let place = self.processes[process].place_at(node).unwrap_or(FIRST);
        let chance = self.chance(80, now, self.number);
        let is_bad = now < self.plan.calm_at && chance % 100 < self.plan.path.bad_hints;
        let latency = self.plan.path.latency / 2 + (chance >> 40) % self.plan.path.latency;
        if now < self.hints_lost_until || is_bad && chance >> 16 & 3 == 0 {
            return;
        }
        if is_bad && chance >> 16 & 3 == 1 {
            self.after(latency * 2, WorldEvent::Hint(process, place, hint.clone()));
        }
        let late = if is_bad && chance >> 16 & 3 == 2 { 700 * MILLI } else { 0 };
        self.after(latency + late, WorldEvent::Hint(process, place, hint));
    }

    pub(super) fn reply(&mut self, index: usize, item: Item) {
        self.links[index].messages += 1;
        let latency = self.latency(index, self.links[index].messages);
        let link = &mut self.links[index];
        link.down = link.down.max(clock::now() + latency);
        let process = link.process;
        let deviation = self.deviation(MessageSort::Answer, process);
        if deviation == Some(Deviation::Late) {
            self.links[index].down += LATE;
        }
        let down = self.links[index].down;
        self.at(down, WorldEvent::Answer(index, item));
        if deviation == Some(Deviation::Lost) {
            self.cut(index, None, MILLI);
        }
    }

    pub(super) fn answer(&mut self, index: usize, item: Item) {
        let link = &mut self.links[index];
        if link.state != LinkState::Open {
            return;
        }
        if let Item::Answer(seq, _) | Item::Again(seq, _) | Item::Redirected(seq, ..) = &item {
            link.unanswered.remove(seq);
        }
        let released = match &item {
            Item::Answer(seq, Ok(_)) => link.releases.remove(seq),
            _ => None,
        };
        link.has_bad_news |= matches!(item, Item::Broken(_));
        link.spoke = clock::now();
        lock(&link.pipe).arrive(item);
        notice(&link.pipe, Noticed::Readable);
        if let Some(token) = released {
            self.server.note(&token).is_released = true;
        }
        self.books.borrow_mut().history.step(43, index as u64);
    }

    /// The client has closed a connection.
    pub(super) fn close(&mut self, index: usize) {
        let now = clock::now();
        let link = &mut self.links[index];
        let was = std::mem::replace(&mut link.state, LinkState::Closed);
        let process = link.process;
        let owed: Vec<_> = link.releases.keys().copied().collect();
        let lost = std::mem::take(&mut link.unanswered);
        let oldest = lost.values().map(|(sent, _)| *sent).min();
        let patience = self.plan.processes[process].command_timeout.max(500 * MILLI);
        let spoke = link.spoke;
        let has_bad_news = link.has_bad_news;
        // By the clock of the process, which may run fast.
        let spoke_lately =
            now < spoke + patience * 98 / 100 && oldest.is_some_and(|sent| spoke > sent);
        let is_needless = was == LinkState::Open && spoke_lately && !has_bad_news;
        for (_, token) in lost.into_values() {
            if let Some(token) = token {
                self.server.note(&token).is_doubtful = true;
            }
        }
        for seq in owed {
            self.owes_again(index, seq);
        }
        self.books.borrow_mut().history.line(|_| format!("p{process} closes connection {index}"));
        let place = self.links[index].place;
        let process = &self.processes[process];
        // A node that is not on the map any more is of no use, however well its connection.
        let is_on_map = process.core.places.get(place).is_some();
        if is_needless && is_on_map && !process.is_over && process.is_alive {
            self.violated("a connection was closed that had spoken within the patience");
        }
    }

    /// The network or the server ends a connection; the client learns of it after `notice`.
    pub(super) fn cut(&mut self, index: usize, late: Option<u64>, notice: u64) {
        let link = &mut self.links[index];
        if link.state != LinkState::Open && link.state != LinkState::HalfOpen {
            return;
        }
        (link.state, link.late_by) = (LinkState::Cut, late);
        self.after(notice, WorldEvent::End(index));
    }

    pub(super) fn end_link(&mut self, index: usize) {
        let link = &self.links[index];
        if link.state == LinkState::Closed {
            return;
        }
        lock(&link.pipe).is_ended = true;
        notice(&link.pipe, Noticed::Readable);
        let process = link.process;
        self.books.borrow_mut().history.line(|_| format!("p{process} loses connection {index}"));
    }

    pub(super) fn connect(&mut self, process: usize, place: PlaceId, number: u64) {
        let now = clock::now();
        if now < self.server.loses_until {
            // There is no answer; the engine gives up by itself.
            return;
        }
        let refused = now < self.server.refuses_until;
        let named = self.processes[process].core.places.get(place);
        let Some(named) = named else { return };
        let node = named.name.as_ref().map_or(0, node_of);
        let thawed = self.frozen_until(node);
        if now < thawed {
            return self.at(thawed, WorldEvent::Connect(process, place, number));
        }
        let is_replica = self.plan.has_sentinels() && !self.nodes.serves(node);
        if refused || is_replica {
            let fault = Fault::new(FaultClass::Refused, "connection refused");
            self.processes[process].inputs.push((place, number, Err(fault)));
            return self.drive_soon(process);
        }
        let ordinal = self.links.iter().filter(|link| link.process == process).count() as u64;
        let (link, seed) = (process as u64 * 1_000 + ordinal, self.plan.seed);
        let readers = self.plan.readers.as_ref();
        let (fills, unwatchable) = readers.map_or((0, 0), |it| (it.fills, it.unwatchable));
        let pipe = SharedPipe::new(Pipe::new(Filling::new(seed, link, fills), unwatchable).into());
        self.links.push(NetworkLink {
            process,
            place,
            node,
            ordinal,
            pipe: Arc::clone(&pipe),
            state: LinkState::Open,
            up: now,
            down: now,
            under_way: VecDeque::new(),
            messages: 0,
            unanswered: BTreeMap::new(),
            releases: BTreeMap::new(),
            spoke: now,
            late_by: None,
            has_bad_news: false,
            rounds: BTreeSet::new(),
            asking: BTreeSet::new(),
        });
        let index = self.links.len() - 1;
        self.books
            .borrow_mut()
            .history
            .line(|_| format!("p{process} has connection {index} (attempt {number})"));
        let made: Connected = Box::new(SimulatedWire::new(pipe, self.is_without_scripts()));
        self.processes[process].inputs.push((place, number, Ok(made)));
        self.drive_soon(process);
    }
}
