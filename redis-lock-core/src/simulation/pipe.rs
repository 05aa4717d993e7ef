//! The client's end of a connection, which runtimes watch as they watch a socket.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::readers::full_for;
use super::{clock, random};
use crate::domain::fault::Fault;
use crate::store::wire::Redirect;
use crate::store::{Answer, Command};

/// What arrives at the client.
#[derive(Debug)]
pub(super) enum Item {
    Answer(u64, Result<Answer, Fault>),
    /// The command needs another round, as one does whose script is not known.
    Again(u64, Command),
    /// Another node has the key.
    Redirected(u64, Command, Redirect),
    Broken(Fault),
}

/// What the client does, in order.
#[derive(Debug)]
pub(super) enum Sent {
    Command(u64, Command),
    /// The same with an `ASKING` before it.
    Asking(u64, Command),
    /// It has learned that the outcome of this command is unknown.
    Failed(u64),
}

/// The client's end of a connection.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) pushed: VecDeque<Sent>,
    /// What the client has sent and the network has not taken.
    pub(super) sent: VecDeque<Sent>,
    /// What has arrived.
    pub(super) inbox: VecDeque<Item>,
    /// Since when something has arrived that the client has not read.
    unread_since: Option<u64>,
    /// How many commands of the client have no answer here yet.
    owed: usize,
    /// Since when the client has had something to send that the socket would take.
    unsent_since: Option<u64>,
    /// How long reading and sending took since the last look.
    pub(super) delays: Vec<Delay>,
    /// The socket takes nothing before this.
    full_until: u64,
    /// The world knows until when.
    is_full_known: bool,
    filling: Filling,
    /// That of the runtime that watches it.
    registration: Option<PipeRegistration>,
    registration_count: u64,
    /// Of a hundred registrations so many fail.
    unwatchable: u64,
    /// Nothing comes after what is in the inbox.
    pub(super) is_ended: bool,
    /// The client has closed it.
    pub(super) is_dropped: bool,
}

/// How the socket of a pipe takes only a part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    seed: u64,
    link: u64,
    /// Of a hundred attempts to send, so many find that it does.
    chance: u64,
    count: u64,
}

impl Filling {
    pub(super) fn new(seed: u64, link: u64, chance: u64) -> Self {
        Self { seed, link, chance, count: 0 }
    }
}

/// What took the client how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub(super) what: &'static str,
    pub(super) since: u64,
    pub(super) until: u64,
}

/// Makes these chances differ from others of the same seed.
const OF_FILLING: u64 = 121;

impl Pipe {
    pub(super) fn new(filling: Filling, unwatchable: u64) -> Self {
        Self { filling, unwatchable, ..Self::default() }
    }

    pub(super) fn arrive(&mut self, item: Item) {
        // For another round the command is sent again, and counts again.
        if !matches!(item, Item::Broken(_)) {
            self.owed = self.owed.saturating_sub(1);
        }
        self.inbox.push_back(item);
        self.unread_since.get_or_insert_with(clock::now);
    }

    pub(super) fn push(&mut self, command: Option<(u64, Command)>) {
        self.push_sent(command.map(|(seq, command)| Sent::Command(seq, command)));
    }

    pub(super) fn push_sent(&mut self, sent: Option<Sent>) {
        if sent.is_some() {
            if self.unread_since.is_some() && self.awaited_since().is_none() {
                self.unread_since = Some(clock::now());
            }
            self.owed += 1;
            let takes_from = clock::now().max(self.full_until);
            self.unsent_since.get_or_insert(takes_from);
        }
        self.pushed.extend(sent);
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self) {
        let now = clock::now();
        if self.pushed.is_empty() || self.is_full() {
            return;
        }
        let Filling { seed, link, chance, count } = self.filling;
        self.filling.count += 1;
        let by_chance = random::hash([seed, OF_FILLING, link, count]);
        let fills = by_chance % 100 < chance;
        let taken =
            if fills { (by_chance >> 8) as usize % self.pushed.len() } else { self.pushed.len() };
        self.sent.extend(self.pushed.drain(..taken));
        self.note_delay("sent", self.unsent_since);
        self.unsent_since = None;
        if fills {
            self.full_until = now + full_for(by_chance >> 32);
            self.is_full_known = false;
            self.unsent_since = Some(self.full_until);
        }
    }

    pub(super) fn fail(&mut self, seq: u64) {
        self.sent.append(&mut self.pushed);
        self.unsent_since = None;
        self.sent.push_back(Sent::Failed(seq));
    }

    /// Takes out whether something arrived that the client has not read.
    pub(super) fn read(&mut self) -> bool {
        self.note_delay("read", self.awaited_since());
        self.unread_since.take().is_some()
    }

    /// Since when something has arrived that the client must read soon. That the connection has broken, it
    /// looks for only when it has asked something.
    fn awaited_since(&self) -> Option<u64> {
        let is_idle = self.owed == 0 && self.inbox.iter().all(|it| matches!(it, Item::Broken(_)));
        self.unread_since.filter(|_| !is_idle)
    }

    fn note_delay(&mut self, what: &'static str, since: Option<u64>) {
        let until = clock::now();
        self.delays.extend(since.map(|since| Delay { what, since, until }));
    }

    /// What has been waiting to be read or sent until now.
    pub(super) fn waits(&self) -> impl Iterator<Item = Delay> {
        let until = clock::now();
        let wait = move |what, since: Option<u64>| since.map(|since| Delay { what, since, until });
        wait("read", self.awaited_since()).into_iter().chain(wait("sent", self.unsent_since))
    }

    fn is_readable(&self) -> bool {
        self.unread_since.is_some() || self.is_ended
    }

    /// Until when the socket takes nothing, if that is new.
    pub(super) fn begins_to_be_full(&mut self) -> Option<u64> {
        let was_known = std::mem::replace(&mut self.is_full_known, true);
        (!was_known && self.is_full()).then_some(self.full_until)
    }

    fn is_full(&self) -> bool {
        clock::now() < self.full_until
    }
}

/// The runtime that watches a pipe notices this.
pub(super) fn notice(pipe: &SharedPipe, what: Noticed) {
    let waker = lock(pipe).registration.as_mut().and_then(|noted| {
        match what {
            Noticed::Readable => noted.is_readable = true,
            Noticed::Writable => noted.is_writable = true,
        }
        noted.waker.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) type SharedPipe = Arc<Mutex<Pipe>>;

pub(super) fn lock(pipe: &SharedPipe) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes these chances differ from others of the same seed.
const OF_REGISTRATIONS: u64 = 120;

/// What a runtime has noticed of a pipe, and who is woken when it notices more.
#[derive(Debug)]
struct PipeRegistration {
    is_readable: bool,
    is_writable: bool,
    waker: Option<Waker>,
}

/// What a runtime notices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Noticed {
    Readable,
    Writable,
}

impl Pipe {
    /// Registers it unless it is registered. Of a hundred registrations some fail, as in a process without
    /// free descriptors.
    fn registered(&mut self) -> io::Result<&mut PipeRegistration> {
        if self.registration.is_none() {
            self.registration_count += 1;
            let Filling { seed, link, .. } = self.filling;
            let by_chance = random::hash([seed, OF_REGISTRATIONS, link, self.registration_count]);
            if by_chance % 100 < self.unwatchable {
                return Err(io::Error::other("no free descriptors"));
            }
        }
        let (is_readable, is_writable) = (self.is_readable(), !self.is_full());
        let new = || PipeRegistration { is_readable, is_writable, waker: None };
        Ok(self.registration.get_or_insert_with(new))
    }

    /// What was noticed is used up, so that what happens from now on is noticed again.
    pub(super) fn poll_ready(
        &mut self,
        context: &Context<'_>,
        sending: bool,
    ) -> Poll<io::Result<()>> {
        let noted = self.registered()?;
        let is_readable = std::mem::take(&mut noted.is_readable);
        let is_writable = sending && std::mem::take(&mut noted.is_writable);
        if is_readable || is_writable {
            return Poll::Ready(Ok(()));
        }
        noted.waker = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) fn unwatch(&mut self) {
        self.registration = None;
    }
}
