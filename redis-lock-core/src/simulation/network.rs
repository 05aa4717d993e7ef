//! Connections: ordered pipes in both directions, whose other end is the simulation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::error::Fault;
use crate::store::{Answer, BoxFuture, Command, Connected, Connector, Filled, Hints, Pulled, Wire};

/// What arrives at the client.
#[derive(Debug)]
pub(super) enum Item {
    Answer(u64, Result<Answer, Fault>),
    /// The command needs another round, as one does whose script is not known.
    Again(u64, Command),
    Broken(Fault),
}

/// The client's end of a connection.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pushed: VecDeque<(u64, Command)>,
    /// What the client has sent and the network has not taken.
    pub(super) sent: VecDeque<(u64, Command)>,
    /// What has arrived.
    pub(super) inbox: VecDeque<Item>,
    /// Whether something arrived that the client has not noticed.
    is_news: bool,
    /// Nothing comes after what is in the inbox.
    pub(super) is_ended: bool,
    /// The client has closed it.
    pub(super) is_dropped: bool,
}

impl Pipe {
    pub(super) fn arrive(&mut self, item: Item) {
        self.inbox.push_back(item);
        self.is_news = true;
    }
}

pub(super) type SharedPipe = Arc<Mutex<Pipe>>;

pub(super) fn lock(pipe: &SharedPipe) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct SimulatedWire {
    pipe: SharedPipe,
}

impl SimulatedWire {
    pub(super) fn new(pipe: SharedPipe) -> Self {
        Self { pipe }
    }
}

impl Wire for SimulatedWire {
    fn push(&mut self, seq: u64, command: Command) {
        lock(&self.pipe).pushed.push_back((seq, command));
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut pipe = lock(&self.pipe);
        let Pipe { pushed, sent, .. } = &mut *pipe;
        sent.append(pushed);
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        lock(&self.pipe).pushed.is_empty()
    }

    fn fill(&mut self) -> io::Result<Filled> {
        let mut pipe = lock(&self.pipe);
        let received = std::mem::take(&mut pipe.is_news);
        if pipe.is_ended && !received {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Filled { received, more: pipe.is_ended })
    }

    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        let mut pipe = lock(&self.pipe);
        loop {
            match pipe.inbox.pop_front()? {
                Item::Answer(seq, answer) => return Some(Pulled::Done(seq, answer)),
                Item::Broken(fault) => return Some(Pulled::Broken(fault)),
                Item::Again(seq, command) if wants(seq) => pipe.pushed.push_back((seq, command)),
                Item::Again(seq, _) => {
                    let what = "nobody wants its next round";
                    let fault = Fault::new(crate::domain::error::FaultClass::Refused, what);
                    return Some(Pulled::Done(seq, Err(fault)));
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
    /// Its number among those of the process.
    pub(super) ordinal: u64,
    pub(super) pipe: SharedPipe,
    pub(super) state: LinkState,
    /// When the last message in each direction arrives: pipes keep their order.
    pub(super) up: u64,
    pub(super) down: u64,
    pub(super) messages: u64,
    /// Commands that were sent and not answered, with the time of their sending.
    pub(super) unanswered: BTreeMap<u64, (u64, Option<Arc<str>>)>,
    /// When the client was last handed something.
    pub(super) spoke: u64,
    /// What becomes of the bytes that the server has not executed when the connection ends.
    pub(super) late_by: Option<u64>,
    /// The client was told that it is of no use.
    pub(super) has_bad_news: bool,
    /// Commands that took another round.
    pub(super) rounds: BTreeSet<u64>,
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
