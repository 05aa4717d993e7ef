//! A connection to an arbiter, as the queue of a place drives it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::redirect::Redirect;
use super::{Answer, Command, Event};
use crate::domain::clock::Moment;
use crate::domain::error::Fault;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One connection. Nothing that it does blocks, and any thread may use it, one at a time. What is
/// pushed first is executed first.
pub(crate) trait Wire: Send {
    /// Adds a command to what is to be sent. `seq` names it from here on.
    fn push(&mut self, seq: u64, command: Command);

    /// The same for a key that is on its way to the node that this leads to.
    fn push_asking(&mut self, seq: u64, command: Command) {
        self.push(seq, command);
    }

    /// Sends what can be sent now.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether all has been sent.
    fn is_flushed(&self) -> bool;

    /// Takes in what has arrived.
    fn fill(&mut self) -> io::Result<Filled>;

    /// The next command that is done with, if there is one. A command may take several rounds, and
    /// others pass it meanwhile; `wants` says whether a further round of one is wanted still.
    fn pull(&mut self, wants: &mut dyn FnMut(u64) -> bool) -> Option<Pulled>;

    /// Since when answers are owed on this connection itself, and not on others that it uses, so that
    /// its silence means something; `oldest` is when the oldest command without an answer was pushed.
    fn owes_since(&self, oldest: Moment) -> Option<Moment> {
        Some(oldest)
    }

    /// Whether commands are executed as they are pushed, so that their answers are there at once.
    fn is_instant(&self) -> bool {
        false
    }
}

/// What came of an attempt to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filled {
    /// Something arrived.
    pub(crate) heard: bool,
    /// There may be more.
    pub(crate) more: bool,
}

/// What a wire has to report.
#[derive(Debug)]
pub(crate) enum Pulled {
    /// A command is done with. A fault that is not of an unknown outcome means that it was
    /// certainly not executed.
    Done(u64, Result<Answer, Fault>),
    /// A command was certainly not executed, because another node has its key.
    Redirected(u64, Command, Redirect),
    /// The connection can't be used any longer: its place in the stream of answers is lost, or it
    /// leads to somebody who must not be asked.
    Broken(Fault),
}

/// Tells when a wire has something to do.
pub(crate) trait Readiness: Send + Sync {
    /// Ready when something may have arrived; where `sending`, also when more can be sent. Only the
    /// task that polled last is woken.
    fn poll_ready(&self, context: &mut Context<'_>, sending: bool) -> Poll<io::Result<()>>;
}

/// Makes the readiness of a wire on the runtime that it is called on.
pub(crate) type Watcher = Arc<dyn Fn() -> io::Result<Box<dyn Readiness>> + Send + Sync>;

/// A connection that has introduced itself.
pub(crate) struct Connected {
    pub(crate) wire: Box<dyn Wire>,
    /// None where answers are there at once.
    pub(crate) watcher: Option<Watcher>,
}

/// Where a place learns what happens without having asked.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    place: u64,
    events: mpsc::UnboundedSender<(u64, Event)>,
}

impl Hints {
    /// What happens at this place, with its number, to whoever receives it.
    pub(crate) fn new(place: u64, events: mpsc::UnboundedSender<(u64, Event)>) -> Self {
        Self { place, events }
    }

    /// `false` when nobody is there any more to hear it.
    pub(crate) fn send(&self, event: Event) -> bool {
        self.events.send((self.place, event)).is_ok()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}

/// Knows the address and the credentials of one arbiter, and makes connections to it.
pub(crate) trait Connector: Send + Sync {
    /// Connects, introduces itself and finds out what the server can do. Polled on the engine's
    /// runtime; whoever polls bounds the time.
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>>;

    /// Listens for hints until that ends, and says why. It reports when it has begun.
    fn listen(&self, hints: Hints) -> BoxFuture<'static, Fault>;
}
