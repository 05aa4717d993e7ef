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

use self::entry::Entry;
use super::{
    Acquire, Answer, BoxFuture, Command, Connected, Connector, Event, Filled, Hints, Pulled, Verb,
    Wire,
};
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::env;
use crate::domain::fault::Fault;
use crate::domain::glob;
use crate::store::Blocker;
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
        // Hints are only queued here: nothing is done about them under this lock.
        let mut publish = |manager: &str, token: Option<&str>| {
            let Some(hints) = managers.get(manager) else { return false };
            let Some(token) = token else { return !hints.is_closed() };
            hints.send(Event::Granted { token: token.to_owned(), waited_for: false })
        };
        let answer = state.answer(&command, &self.manager, now, &mut publish);
        let hint = answer.as_ref().ok().and_then(|answer| hint_of(&command, answer));
        if let Some((manager, event)) = hint
            && let Some(hints) = managers.get(manager.as_str())
        {
            // When that manager's engine has ended, nobody receives it.
            let _ = hints.send(event);
        }
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

/// Notifies a manager that one of its tokens was granted the lock; returns `false` if the manager
/// does not listen. Without a token, only returns whether it listens.
pub(crate) type Publish<'a> = &'a mut dyn FnMut(&str, Option<&str>) -> bool;

/// What a command is executed with: when, for which manager, and whom it lets others know.
pub(super) struct Execution<'a> {
    now: Moment,
    manager: &'a Arc<str>,
    publish: Publish<'a>,
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
        publish: Publish<'_>,
    ) -> Result<Answer, Fault> {
        if let Verb::Scan { .. } = command.verb {
            let matching = |key: &&String| glob::matches(command.names.main(), key);
            let keys = self.entries.keys().filter(matching).cloned().collect();
            return Ok(Answer::Keys { keys, next: None });
        }
        let answer = self.answer_all(command, &mut Execution { now, manager, publish });
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

/// The message that follows from an answer, and the name of the manager that it is for.
pub(crate) fn hint_of(command: &Command, answer: &Answer) -> Option<(String, Event)> {
    let manager = |value: &str| Token::from_wire(value).manager().map(ToOwned::to_owned);
    let key = || command.names.main().to_owned();
    match (&command.verb, answer) {
        (Verb::Acquire(terms), Answer::Busy(Blocker { value: Some(holder), asked: true, .. })) => {
            let token = terms.token.to_string();
            Some((manager(holder)?, Event::Asked { key: key(), token }))
        }
        // A holder that newer calls end looks whether one has come.
        (
            Verb::Acquire(Acquire { newest: Some(_), .. }),
            Answer::Busy(Blocker { value: Some(holder), .. }),
        ) if Token::from_wire(holder).is_newest() => {
            let token = Token::from_wire(holder).wire().to_string();
            Some((manager(holder)?, Event::Granted { token, waited_for: true }))
        }
        (Verb::Acquire(_), Answer::Busy(Blocker { value: Some(holder), queued: true, .. })) => {
            Some((manager(holder)?, Event::WaitedFor { key: key() }))
        }
        (Verb::InUse { asker }, Answer::Done) => {
            let token = asker.to_string();
            Some((manager(asker)?, Event::Granted { token, waited_for: false }))
        }
        _ => None,
    }
}
