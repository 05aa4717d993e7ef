//! The arbiter without a server: this process's memory.
//!
//! It says in plain code what the scripts do on a server, and the tests hold the scripts to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use self::entry::Entry;
use super::{Answer, Answers, Command, Event, Store, Verb};
use crate::clock::Moment;
use crate::demand::Kind;
use crate::error::Fault;
use crate::glob;

mod all;
pub(crate) mod entry;
pub(crate) mod fences;
mod inspect;
mod single;
#[cfg(test)]
pub(crate) mod trouble;

/// Below so many locks nobody looks for those that can be forgotten.
const FEW: usize = 1024;

/// Locks in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: State,
    managers: Managers,
}

/// All locks by their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) entries: BTreeMap<String, Entry>,
    /// At how many entries to look for those that can be forgotten.
    sweep_at: usize,
}

/// Whom to tell of grants.
pub(super) type Managers = BTreeMap<Arc<str>, mpsc::UnboundedSender<Event>>;

/// One manager's way to the memory.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    memory: Memory,
    manager: Arc<str>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Memory {
    pub(crate) fn store(&self, manager: &Arc<str>) -> MemoryStore {
        let (sender, events) = mpsc::unbounded_channel();
        // Its own other end is there, so it can't fail.
        let _ = sender.send(Event::Listening { told: true });
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.managers.insert(Arc::clone(manager), sender);
        drop(shared);
        MemoryStore { memory: self.clone(), manager: Arc::clone(manager), events }
    }
}

impl Store for MemoryStore {
    fn execute(&mut self, batch: Arc<[Command]>) -> Answers {
        let now = Moment::now();
        let mut shared = self.memory.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Shared { state, managers } = &mut *shared;
        let mut tell = |manager: &str, token: Option<&str>| {
            let Some(sender) = managers.get(manager) else { return false };
            let Some(token) = token else { return !sender.is_closed() };
            sender.send(Event::Granted { token: token.to_owned(), waited_for: false }).is_ok()
        };
        let answer = |command| state.answer(command, &self.manager, now, &mut tell);
        let answers = batch.iter().map(answer).collect();
        drop(shared);
        Box::pin(std::future::ready(answers))
    }

    fn ready(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn event(&mut self) -> Pin<Box<dyn Future<Output = Event> + Send + '_>> {
        Box::pin(async move {
            match self.events.recv().await {
                Some(event) => event,
                None => std::future::pending().await,
            }
        })
    }

    fn unresponsive(&mut self) {}

    fn describe(&self) -> String {
        "memory of this process".into()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.events.close();
        let mut shared = self.memory.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Another store of the same manager may have taken the place by now.
        if shared.managers.get(&self.manager).is_some_and(mpsc::UnboundedSender::is_closed) {
            shared.managers.remove(&self.manager);
        }
    }
}

/// Tells a manager that a token of it was granted; `false` when nobody is there to hear it. Without a
/// token it only finds out whether somebody is.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(&str, Option<&str>) -> bool;

impl State {
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
        let answer = if let Kind::All { ordered } = command.kind {
            self.answer_all(command, ordered, manager, now, tell)
        } else {
            self.entry(command.names.main(), now).answer(command, manager, now, tell)
        };
        for names in command.names.all() {
            if self.entries.get_mut(names.main()).is_some_and(|entry| entry.is_blank(now)) {
                self.entries.remove(names.main());
            }
        }
        if self.entries.len() > self.sweep_at.max(FEW) {
            self.entries.retain(|_, entry| !entry.is_blank(now));
            self.sweep_at = self.entries.len() * 2;
        }
        answer
    }

    /// The lock at a key, without those whose lease has ended.
    pub(super) fn entry(&mut self, key: &str, now: Moment) -> &mut Entry {
        let entry = self.entries.entry(key.to_owned()).or_default();
        entry.expire(now);
        entry
    }
}
