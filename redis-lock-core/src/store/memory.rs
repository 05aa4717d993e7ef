//! The arbiter without a server: this process's memory.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Answer, Answers, Command, Event, Rival, Sight, Store, Verb};
use crate::clock::Moment;
use crate::error::Fault;
use crate::glob;
use crate::status::{LockKind, ReleaseBy, ServerInfo};

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
    /// Whose hold was ended by force, and why; until it was told.
    forced: Option<(Arc<str>, Arc<str>)>,
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
    if let Verb::Scan { .. } = command.verb {
        let keys = mutexes.keys().filter(|name| glob::matches(key, name)).cloned().collect();
        return Answer::Keys { keys, next: None };
    }
    let entry = mutexes.entry(key.to_owned()).or_insert(Entry {
        holder: None,
        fence: 0,
        fenced: None,
        forced: None,
    });
    entry.holder.take_if(|(_, end)| *end <= now);
    let answer = entry.answer(&command.verb, now);
    if entry.holder.is_none() && entry.fence == 0 && entry.forced.is_none() {
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
            Verb::Look => Answer::Seen(Box::new(self.sight(now))),
            Verb::Force { tokens, because, .. } => {
                let named = |holder: &Arc<str>| tokens.iter().any(|token| token.wire() == holder);
                match self.holder.take_if(|(holder, _)| named(holder)) {
                    Some((holder, _)) => {
                        self.forced = Some((holder, Arc::clone(because)));
                        Answer::Done
                    }
                    None => Answer::Gone { by: None, because: None },
                }
            }
            // Answered for all keys at once.
            Verb::Scan { .. } => Answer::Keys { keys: Vec::new(), next: None },
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

    fn sight(&self, now: Moment) -> Sight {
        let server = ServerInfo { version: "memory".into(), release: ReleaseBy::Memory };
        let sight = match &self.holder {
            Some((holder, end)) => {
                let left = (*end != Moment::NEVER).then(|| end.since(now));
                let fence = self.fenced.as_deref().map(|owner| (self.fence, owner));
                Sight::of_value(holder, left, fence)
            }
            None => Sight::of_nobody(LockKind::Free),
        };
        Sight { server: Some(server), ..sight }
    }

    /// The answer to a token that does not have it.
    fn gone(&mut self, token: &Arc<str>) -> Option<Answer> {
        if let Some((_, because)) = self.forced.take_if(|(forced, _)| forced == token) {
            return Some(Answer::Gone { by: None, because: Some(because.to_string()) });
        }
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
