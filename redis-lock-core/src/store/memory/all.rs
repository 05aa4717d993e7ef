//! Commands for several mutexes that are one lock.

use std::sync::Arc;
use std::time::Duration;

use super::entry::{Entry, end};
use super::fences::{check, number, raise};
use super::{Publish, State};
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Acquire, Answer, Command, Keep, Verb};

/// The kind of each of the mutexes.
const ONE: Kind = Kind::Mutex;

impl State {
    /// Executes a command of `manager` for all keys of a lock.
    pub(super) fn answer_all(
        &mut self,
        command: &Command,
        ordered: bool,
        manager: &Arc<str>,
        now: Moment,
        publish: Publish<'_>,
    ) -> Result<Answer, Fault> {
        let keys: Vec<&str> = command.names.all().map(|names| names.main()).collect();
        match &command.verb {
            Verb::Acquire(terms) => self.acquire_all(terms, &keys, ordered, manager, now, publish),
            Verb::Renew { token, ttl } => Ok(self.renew_all(&keys, token, *ttl, now)),
            Verb::Keep { token, time } => {
                let answer = self.look_at_all(&keys, token, now);
                if answer == Answer::Done {
                    for key in keys {
                        self.entry(key, now).holders.set_end(token, now.after(*time));
                    }
                }
                Ok(answer)
            }
            Verb::Check { token } => Ok(self.look_at_all(&keys, token, now)),
            Verb::Release { token, keep, tombstone, .. } => {
                let answer = self.release_all(&keys, token, keep.as_ref(), now, publish);
                if let (Some(tombstone), Some(first)) = (tombstone, keys.first()) {
                    self.entry(first, now).leave_tombstone(
                        token,
                        &"".into(),
                        now.after(*tombstone),
                    );
                }
                Ok(answer)
            }
            Verb::Raise { token, fence } => {
                for key in keys {
                    raise(&mut self.entry(key, now).fence, token, *fence, now);
                }
                Ok(Answer::Done)
            }
            _ => Err(Fault::new(FaultClass::Permanent, "several keys can't be asked for that")),
        }
    }

    fn renew_all(
        &mut self,
        keys: &[&str],
        token: &Arc<str>,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Answer {
        let answer = self.look_at_all(keys, token, now);
        if answer != Answer::Done {
            return answer;
        }
        let mut all = (None, false);
        for key in keys {
            let renewed = self.entry(key, now).renew(token, ttl, now);
            if let Some(Answer::Renewed { longer, waited_for }) = renewed {
                all = (all.0.max(longer), all.1 | waited_for);
            }
        }
        Answer::Renewed { longer: all.0, waited_for: all.1 }
    }

    fn release_all(
        &mut self,
        keys: &[&str],
        token: &Arc<str>,
        keep: Option<&Keep>,
        now: Moment,
        publish: Publish<'_>,
    ) -> Answer {
        let answer = self.look_at_all(keys, token, now);
        for key in keys {
            let entry = self.entry(key, now);
            match keep {
                _ if !entry.has(token) => entry.leave(token),
                Some(keep) => {
                    entry.keep(ONE, token, keep, now, publish);
                }
                None => entry.give_back(token, None, now, publish),
            }
        }
        answer
    }

    fn acquire_all(
        &mut self,
        terms: &Acquire,
        keys: &[&str],
        ordered: bool,
        manager: &Arc<str>,
        now: Moment,
        publish: Publish<'_>,
    ) -> Result<Answer, Fault> {
        let Acquire { token, ttl, queue, fair, fences, .. } = terms;
        if keys.first().is_some_and(|first| self.entry(first, now).has_tombstone(token)) {
            return Ok(Answer::Tombstone);
        }
        for key in keys {
            let entry = self.entry(key, now);
            entry.check_family(ONE)?;
            check(entry.fence.as_ref(), *fences, now)?;
        }
        let mut blocker = None;
        for (at, key) in keys.iter().enumerate() {
            let entry = self.entry(key, now);
            if entry.holders.is_empty() && *fair {
                entry.admit(ONE, Some(token), now, publish);
            }
            if !entry.has(token) && !entry.holders.is_empty() && blocker.is_none() {
                blocker = Some((at, entry.blocker(ONE, queue.is_some(), now)));
            }
        }
        for (at, key) in keys.iter().enumerate() {
            let entry = self.entry(key, now);
            match (&blocker, queue) {
                (None, _) => {
                    entry.leave(token);
                    entry.put(token, ONE, end(now, *ttl));
                }
                (Some((busy, _)), Some(place)) if at == *busy => {
                    entry.enqueue(token, ONE, now.after(*place), manager);
                    entry.mark();
                }
                (Some((busy, _)), Some(place)) if ordered && at < *busy => {
                    entry.leave(token);
                    entry.put(token, ONE, now.after(*place));
                    entry.holders.set_end(token, now.after(*place));
                }
                (Some(_), _) => {
                    entry.leave(token);
                    entry.give_back(token, Some(token), now, publish);
                }
            }
        }
        if let Some((_, blocker)) = blocker {
            return Ok(Answer::Busy(blocker));
        }
        let fence = (*fences > 0).then(|| self.number_of_all(keys, token, *fences, now));
        Ok(Answer::Held { fence })
    }

    fn number_of_all(&mut self, keys: &[&str], token: &Arc<str>, count: u32, now: Moment) -> u64 {
        let mut lasts: Vec<_> = keys.iter().map(|key| self.entry(key, now).fence.take()).collect();
        let number = number(&mut lasts.iter_mut().collect::<Vec<_>>(), token, count, now);
        for (key, last) in keys.iter().zip(lasts) {
            self.entry(key, now).fence = last;
        }
        number
    }

    /// Checks that the token has all of the keys.
    fn look_at_all(&mut self, keys: &[&str], token: &Arc<str>, now: Moment) -> Answer {
        for key in keys {
            let entry = self.entry(key, now);
            if !entry.has(token) {
                return entry.gone(ONE, token);
            }
        }
        Answer::Done
    }
}

impl Entry {
    /// Releases the mutex if the token has it, and grants it to the next waiter.
    fn give_back(
        &mut self,
        token: &Arc<str>,
        asker: Option<&Arc<str>>,
        now: Moment,
        publish: Publish<'_>,
    ) {
        if self.holders.remove(token).is_some() {
            self.admit(ONE, asker, now, publish);
        }
    }
}
