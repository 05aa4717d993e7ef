//! The arbiter without a server: this process's memory.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Answer, Answers, Command, Event, Rival, Store, Verb};
use crate::clock::Moment;
use crate::error::Fault;

/// Locks in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    mutexes: Arc<Mutex<HashMap<String, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    /// Who has it, if anybody.
    holder: Option<(Arc<str>, Moment)>,
    fence: u64,
    /// Whom the last fencing number was given to.
    fenced: Option<Arc<str>>,
}

impl Store for Memory {
    fn execute(&mut self, batch: Arc<[Command]>) -> Answers {
        let now = Moment::now();
        let mut mutexes = self.mutexes.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = batch.iter().map(|command| Ok(answer(&mut mutexes, command, now))).collect();
        drop(mutexes);
        Box::pin(std::future::ready(answers))
    }

    fn ready(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn event(&mut self) -> Pin<Box<dyn Future<Output = Event> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    fn unresponsive(&mut self) {}

    fn describe(&self) -> String {
        "memory of this process".into()
    }
}

fn answer(mutexes: &mut HashMap<String, Entry>, command: &Command, now: Moment) -> Answer {
    let key = command.names.main();
    let entry =
        mutexes.entry(key.to_owned()).or_insert(Entry { holder: None, fence: 0, fenced: None });
    entry.holder.take_if(|(_, end)| *end <= now);
    let answer = entry.answer(&command.verb, now);
    if entry.holder.is_none() && entry.fence == 0 {
        mutexes.remove(key);
    }
    answer
}

impl Entry {
    fn answer(&mut self, verb: &Verb, now: Moment) -> Answer {
        match verb {
            Verb::Take { token, ttl } => self.take(token, *ttl, 0, now),
            Verb::Acquire { token, ttl, fences, .. } => self.take(token, *ttl, *fences, now),
            Verb::Yield { token, ttl, fences, .. } => match self.gone(token) {
                Some(gone) => gone,
                None => self.take(token, *ttl, *fences, now),
            },
            Verb::Renew { token, ttl } => match self.gone(token) {
                Some(gone) => gone,
                None => {
                    self.holder = Some((Arc::clone(token), end(now, *ttl)));
                    Answer::Done
                }
            },
            Verb::Check { token } => self.gone(token).unwrap_or(Answer::Done),
            Verb::Release { token, keep, .. } => match self.gone(token) {
                Some(gone) => gone,
                None => {
                    self.holder = keep.map(|keep| (Arc::clone(token), now.after(keep)));
                    Answer::Done
                }
            },
        }
    }

    fn take(
        &mut self,
        token: &Arc<str>,
        ttl: Option<Duration>,
        fences: u32,
        now: Moment,
    ) -> Answer {
        match &self.holder {
            Some((holder, end)) if holder != token => {
                let ttl = (*end != Moment::NEVER).then(|| end.since(now));
                let value = Some(holder.to_string());
                return Answer::Busy(Rival { value, ttl, queued: false, repaired: false });
            }
            _ => self.holder = Some((Arc::clone(token), end(now, ttl))),
        }
        if fences > 0 && self.fenced.as_ref() != Some(token) {
            let floor = u64::try_from(now.since(Moment::START).as_micros()).unwrap_or(u64::MAX);
            self.fence = self.fence.saturating_add(1).max(floor) + u64::from(fences - 1);
            self.fenced = Some(Arc::clone(token));
        }
        Answer::Held { fence: (fences > 0).then_some(self.fence) }
    }

    /// The answer to a token that does not have it.
    fn gone(&self, token: &Arc<str>) -> Option<Answer> {
        match &self.holder {
            Some((holder, _)) if holder == token => None,
            Some((holder, _)) => Some(Answer::Gone { by: Some(holder.to_string()), because: None }),
            None => Some(Answer::Gone { by: None, because: None }),
        }
    }
}

fn end(now: Moment, ttl: Option<Duration>) -> Moment {
    ttl.map_or(Moment::NEVER, |ttl| now.after(ttl))
}
