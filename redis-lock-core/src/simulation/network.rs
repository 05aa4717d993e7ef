//! Connections: ordered pipes in both directions, whose other end is the simulation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::pipe::{Item, Sent, SharedPipe, lock};
use crate::domain::fault::Fault;
use crate::engine::places::PlaceId;
use crate::store::redis::Sequence;
use crate::store::{Answer, BoxFuture, Command, Connected, Connector, Filled, Hints, Pulled, Wire};

pub(super) struct SimulatedWire {
    pipe: SharedPipe,
    /// Where each question is a transaction, those about one key are executed one after the other.
    sequence: Option<Sequence>,
    done: VecDeque<Pulled>,
}

impl SimulatedWire {
    pub(super) fn new(pipe: SharedPipe, is_without_scripts: bool) -> Self {
        let sequence = is_without_scripts.then(Sequence::default);
        Self { pipe, sequence, done: VecDeque::new() }
    }

    /// The outcome of a command, and the rounds that follow it.
    fn finish(&mut self, seq: u64, answer: Result<Answer, Fault>) -> Pulled {
        if let Some(sequence) = &mut self.sequence {
            match &answer {
                Err(fault) if fault.class.is_unknown() => {
                    lock(&self.pipe).fail(seq);
                    let fails = |seq| Pulled::Done(seq, Err(fault.clone()));
                    self.done.extend(sequence.abandon(seq).map(fails));
                }
                _ => lock(&self.pipe).push(sequence.end(seq)),
            }
        }
        Pulled::Done(seq, answer)
    }
}

impl Wire for SimulatedWire {
    fn push(&mut self, seq: u64, command: Command) {
        let command = match &mut self.sequence {
            Some(sequence) => sequence.begin(seq, command),
            None => Some(command),
        };
        lock(&self.pipe).push(command.map(|command| (seq, command)));
    }

    fn push_asking(&mut self, seq: u64, command: Command) {
        lock(&self.pipe).push_sent(Some(Sent::Asking(seq, command)));
    }

    fn flush(&mut self) -> io::Result<()> {
        lock(&self.pipe).flush();
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        lock(&self.pipe).pushed.is_empty()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let mut pipe = lock(&self.pipe);
        let received = pipe.read();
        if pipe.is_ended && !received {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Filled { received, more: pipe.is_ended })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sending = !self.is_flushed();
        lock(&self.pipe).poll_ready(context, sending)
    }

    fn unwatch(&mut self) {
        lock(&self.pipe).unwatch();
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        loop {
            if let Some(done) = self.done.pop_front() {
                return Some(done);
            }
            let item = lock(&self.pipe).inbox.pop_front()?;
            match item {
                Item::Answer(seq, answer) => return Some(self.finish(seq, answer)),
                Item::Redirected(seq, command, redirect) => {
                    lock(&self.pipe).fail(seq);
                    return Some(Pulled::Redirected(seq, command, redirect));
                }
                Item::Broken(fault) => return Some(Pulled::Broken(fault)),
                Item::Again(seq, command) if wants(seq) => {
                    lock(&self.pipe).push(Some((seq, command)));
                }
                Item::Again(seq, _) => {
                    let what = "no caller wants its next round";
                    let fault = Fault::new(crate::domain::fault::FaultClass::Refused, what);
                    return Some(self.finish(seq, Err(fault)));
                }
            }
        }
    }
}

impl Drop for SimulatedWire {
    fn drop(&mut self) {
        lock(&self.pipe).is_dropped = true;
    }
}

/// Never asked: the simulation makes connections when the engine wants them.
pub(super) struct Unasked;

impl Connector for Unasked {
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>> {
        Box::pin(std::future::pending())
    }

    fn listen(&self, _: Hints) -> BoxFuture<'static, Fault> {
        Box::pin(std::future::pending())
    }
}

/// A connection, as the network sees it.
pub(super) struct NetworkLink {
    pub(super) process: usize,
    pub(super) place: PlaceId,
    /// The node that it leads to.
    pub(super) node: usize,
    /// Its number among those of the process.
    pub(super) ordinal: u64,
    pub(super) pipe: SharedPipe,
    pub(super) state: LinkState,
    /// When the last message in each direction arrives: pipes keep their order.
    pub(super) up: u64,
    pub(super) down: u64,
    /// What was sent and has not arrived, each with its number and the time of its sending.
    pub(super) under_way: VecDeque<(u64, u64, Box<Command>)>,
    pub(super) messages: u64,
    /// Commands that were sent and not answered, with the time of their sending.
    pub(super) unanswered: BTreeMap<u64, (u64, Option<Arc<str>>)>,
    /// The tokens of releases that were sent and not answered.
    pub(super) releases: BTreeMap<u64, Arc<str>>,
    /// When the client was last handed something.
    pub(super) spoke: u64,
    /// How much later the server executes the bytes that it has not executed when the connection
    /// ends; `None` for never.
    pub(super) late_by: Option<u64>,
    /// The client has learned that the connection is of no use.
    pub(super) has_bad_news: bool,
    /// Commands that took another round.
    pub(super) rounds: BTreeSet<u64>,
    /// Commands that were sent with an `ASKING`.
    pub(super) asking: BTreeSet<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkState {
    Open,
    /// Nothing passes any more, without an error.
    HalfOpen,
    /// The network or the server has ended it; the client learns of it, or did.
    Cut,
    /// The client has closed it.
    Closed,
}
