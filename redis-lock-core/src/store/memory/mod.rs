//! The arbiter without a server: this process's memory.
//!
//! It is also the model of what the scripts do on a server: the conformance test compares the two.

mod all;
pub(crate) mod entry;
pub(crate) mod fences;
pub(crate) mod holders;
mod inspect;
mod single;
#[cfg(test)]
pub(crate) mod test_trouble;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use self::entry::{Entry, StoredWaiter};
use super::{
    Answer, BoxFuture, Command, Connected, Connector, Event, Filled, Hints, Pulled, Verb, Wire,
};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::env;
use crate::domain::fault::Fault;
use crate::domain::glob;
use crate::sync::NonPoisonMutex;

/// Below this many locks, nothing looks for entries that can be removed.
const MIN_SWEEP: usize = 1024;

/// Locks in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    shared: Arc<NonPoisonMutex<SharedLocks>>,
}

#[derive(Debug)]
struct SharedLocks {
    state: State,
    managers: Managers,
    /// How far its clock is ahead of the clock that leases are measured with. It begins with the time of day,
    /// because fencing numbers come from it and must not fall when the machine restarts.
    ahead: Duration,
}

impl Default for SharedLocks {
    fn default() -> Self {
        let state = State { is_steady: true, ..State::default() };
        let wall = env::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead = wall.saturating_sub(Moment::now().since(Moment::START));
        Self { state, managers: Managers::default(), ahead }
    }
}

/// All locks by their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) entries: BTreeMap<String, Entry>,
    /// At how many entries to look for those that can be removed.
    sweep_at: usize,
    /// Whether the clock is never set back, as that of this process.
    is_steady: bool,
}

/// The managers that receive messages.
pub(super) type Managers = BTreeMap<Arc<str>, Hints>;

/// One manager's connector to the locks in memory.
#[derive(Debug)]
pub(crate) struct MemoryConnector {
    memory: Memory,
    manager: Arc<str>,
}

impl Memory {
    pub(crate) fn connector(&self, manager: &Arc<str>) -> MemoryConnector {
        MemoryConnector { memory: self.clone(), manager: Arc::clone(manager) }
    }
}

impl MemoryConnector {
    fn connected(&self) -> Connected {
        let (memory, manager) = (self.memory.clone(), Arc::clone(&self.manager));
        Box::new(MemoryWire { memory, manager, answers: VecDeque::new() })
    }
}

impl Connector for MemoryConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Connected, Fault>> {
        Box::pin(std::future::ready(Ok(self.connected())))
    }

    fn connect_at_once(&self) -> Option<Connected> {
        Some(self.connected())
    }

    fn listen(&self, hints: Hints) -> BoxFuture<'static, Fault> {
        let listener = Listener { memory: self.memory.clone(), manager: Arc::clone(&self.manager) };
        Box::pin(async move {
            let manager = Arc::clone(&listener.manager);
            listener.memory.shared.lock().managers.insert(manager, hints.clone());
            // When the engine has ended, nobody receives it.
            hints.send(Event::Listening { hints_enabled: true });
            std::future::pending().await
        })
    }
}

/// Registers a manager for messages until it is dropped.
struct Listener {
    memory: Memory,
    manager: Arc<str>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.memory.shared.lock().managers.remove(&self.manager);
    }
}

/// Executes commands as they are pushed, so nothing has to be waited for.
struct MemoryWire {
    memory: Memory,
    manager: Arc<str>,
    answers: VecDeque<(u64, Result<Answer, Fault>)>,
}

impl Wire for MemoryWire {
    fn push(&mut self, seq: u64, command: Command) {
        let mut shared = self.memory.shared.lock();
        let now = Moment::now().after(shared.ahead);
        let SharedLocks { state, managers, .. } = &mut *shared;
        // Messages are only queued here: nothing is done about them under this lock.
        let mut tell = |to: To<'_>, event: Option<Event>| {
            let Some(hints) = managers.get(to.name()) else { return false };
            event.map_or_else(|| !hints.is_closed(), |event| hints.send(event))
        };
        let answer = state.answer(&command, &self.manager, now, &mut tell);
        drop(shared);
        self.answers.push_back((seq, answer));
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn fill(&mut self) -> io::Result<Filled> {
        Ok(Filled { received: !self.answers.is_empty(), more: false })
    }

    fn pull(&mut self, _: &mut dyn FnMut(u64) -> bool) -> Option<Pulled> {
        self.answers.pop_front().map(|(seq, answer)| Pulled::Done(seq, answer))
    }

    fn is_instant(&self) -> bool {
        true
    }
}

/// Who gets a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// The manager of a waiter, as its place in the queue names it.
    Waiter(&'a str),
    /// The manager that a token names.
    Manager(&'a str),
}

impl<'a> To<'a> {
    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Waiter(name) | Self::Manager(name) => name,
        }
    }
}

/// Sends a message; returns `false` if nobody listens. Without an event, only returns whether somebody
/// does.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(To<'_>, Option<Event>) -> bool;

/// What a command is executed with: when, for which manager, and how it sends messages.
pub(super) struct Execution<'a> {
    now: Moment,
    /// `-` if it does not listen.
    manager: &'a Arc<str>,
    tell: Tell<'a>,
}

impl Execution<'_> {
    /// Whether the manager of a waiter listens.
    fn is_heard(&mut self, waiter: &StoredWaiter) -> bool {
        (self.tell)(To::Waiter(&waiter.manager), None)
    }

    /// Has a waiter look at the lock. Returns whether its manager listens.
    fn wake(&mut self, manager: &str, token: &str, waited_for: bool) -> bool {
        let token = token.to_owned();
        (self.tell)(To::Waiter(manager), Some(Event::Granted { token, waited_for }))
    }

    /// Sends the manager of a token a message.
    fn tell_manager_of(&mut self, token: &str, event: Event) {
        if let Some(manager) = Token::from_wire(token).manager() {
            (self.tell)(To::Manager(manager), Some(event));
        }
    }
}

impl State {
    /// A state with one lock, as it was read from a server.
    pub(crate) fn of_one(key: &str, entry: Entry) -> Self {
        Self { entries: BTreeMap::from([(key.to_owned(), entry)]), ..Self::default() }
    }

    /// Takes the state of one key out.
    pub(crate) fn into_entry(mut self, key: &str) -> Entry {
        self.entries.remove(key).unwrap_or_default()
    }

    /// Whether the holder of a mutex can see that a client waits.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&mut self, key: &str, now: Moment) -> bool {
        let entry = self.entries.get_mut(key);
        entry.is_some_and(|entry| {
            entry.expire(now);
            entry.holders.first().is_some_and(|holder| holder.waited_for)
        })
    }

    /// Executes a command of `manager`.
    pub(crate) fn answer(
        &mut self,
        command: &Command,
        manager: &Arc<str>,
        now: Moment,
        tell: Tell<'_>,
    ) -> Result<Answer, Fault> {
        if let Verb::Scan { .. } = command.verb {
            let matching = |key: &&String| glob::matches(command.names.main(), key);
            let keys = self.entries.keys().filter(matching).cloned().collect();
            return Ok(Answer::Keys { keys, next: None });
        }
        let answer = self.answer_all(command, &mut Execution { now, manager, tell });
        let steady = self.is_steady;
        for names in command.names.all() {
            if self.entries.get_mut(names.main()).is_some_and(|entry| entry.is_blank(now, steady)) {
                self.entries.remove(names.main());
            }
        }
        if self.entries.len() > self.sweep_at.max(MIN_SWEEP) {
            self.entries.retain(|_, entry| !entry.is_blank(now, steady));
            self.sweep_at = self.entries.len() * 2;
        }
        answer
    }

    /// The lock at a key, after expired entries were removed.
    pub(super) fn entry(&mut self, key: &str, now: Moment) -> &mut Entry {
        let entry = self.entries.entry(key.to_owned()).or_default();
        entry.expire(now);
        entry
    }
}
