//! A process above a quorum: its engine, its connection, and what the nodes tell it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::FutureExt;

use crate::domain::clock::Moment;
use crate::domain::env::simulated;
use crate::domain::fault::{Fault, FaultClass};
use crate::engine::places::{FIRST, PlaceId};
use crate::simulation::clock::{self, MILLI};
use crate::simulation::process::SimulatedProcess;
use crate::store::quorum::Roster;
use crate::store::quorum::tests::fake::FakeLinks;
use crate::store::{Connected, Event};

/// How long after something has happened its engine must have taken a turn, in milliseconds.
const PROMPT: u64 = 2;

/// A connection that is being made: to which place, as which attempt, and until when.
type Connecting = (Connected, (PlaceId, u64), u64);

pub(super) struct QuorumClient {
    pub(super) process: SimulatedProcess,
    roster: Arc<Roster>,
    pub(super) links: Option<FakeLinks>,
    connecting: Option<Connecting>,
    /// Messages on their way: when they arrive, and from which node.
    pub(super) events: Vec<(u64, usize, Event)>,
    /// Grants of one token: when the other nodes had their time, and which nodes have granted it.
    grants: BTreeMap<String, (u64, BTreeSet<usize>)>,
    listens: bool,
    next_return: u64,
    /// When its engine wakes by itself.
    wakes_at: u64,
}

impl QuorumClient {
    pub(super) fn new(process: SimulatedProcess, roster: Arc<Roster>) -> Self {
        Self {
            process,
            roster,
            links: None,
            connecting: None,
            events: Vec::new(),
            grants: BTreeMap::new(),
            listens: false,
            next_return: 0,
            wakes_at: 0,
        }
    }

    /// From here on, this thread runs as its process. All walls have clocks that agree.
    pub(super) fn enter(&self) {
        self.process.clock.enter();
        simulated::set_wall(clock::now());
    }

    /// Lets its engine take a turn if something wakes it.
    pub(super) fn turn(&mut self, now: u64) {
        let process = &mut self.process;
        let is_told = process.core.waker.take() | process.socket_news.take();
        let is_told = is_told || !process.hints.is_empty() || !process.inputs.is_empty();
        if process.is_over || !is_told && self.wakes_at > clock::now() {
            return;
        }
        let driven = process.turn();
        self.wakes_at = process.clock.when(driven.due);
        for (place, number) in driven.connects {
            let (made, links) = FakeLinks::connect(&self.roster, self.links.take());
            self.links = Some(links);
            self.connecting = Some((made, (place, number), now + 500));
        }
        if driven.is_done {
            self.process.core.stop();
            self.process.is_over = true;
            self.connecting = None;
        }
    }

    /// Nothing waits for an engine that sleeps.
    pub(super) fn check_prompt(&self, now: u64) -> Result<(), String> {
        let process = &self.process;
        if process.is_over {
            return Ok(());
        }
        let late = |what: &str| Err(format!("p{} has not {what} at {now}", process.index));
        if let Some(links) = &self.links
            && links.unread_since().is_some_and(|since| since + PROMPT < now)
        {
            return late("read what came from a node");
        }
        let by = Moment::from_nanos(process.clock.at((now - PROMPT) * MILLI));
        match process.core.timers(by).into_iter().find(|(_, at)| *at < by) {
            Some((what, at)) if at > Moment::START => {
                late(&format!("done what its timer {what:?} is for"))
            }
            _ => Ok(()),
        }
    }

    fn linked(&self) -> usize {
        let links = self.links.as_ref();
        links.map_or(0, |links| (0..links.cut.len()).filter(|at| links.is_linked(*at)).count())
    }

    fn majority(&self) -> usize {
        self.roster.names().len() / 2 + 1
    }

    /// Hands over a connection when it leads to a majority.
    pub(super) fn connect(&mut self, now: u64) {
        let (linked, needed) = (self.linked(), self.majority());
        let Some((made, _, until)) = &mut self.connecting else { return };
        // What becomes of one node is its own concern.
        let _ = made.fill();
        if linked < needed && now < *until {
            return;
        }
        let Some((made, (place, number), _)) = self.connecting.take() else { return };
        let fault = || Fault::new(FaultClass::Refused, "too few nodes can be reached");
        let made = (linked >= needed).then_some(made);
        self.process.inputs.push((place, number, made.ok_or_else(fault)));
    }

    /// Passes on what the nodes say, as the task does that listens at all of them.
    pub(super) fn listen(&mut self, now: u64) {
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
