//! Commands for all keys of a lock: one, or several mutexes that are taken together.

use std::sync::Arc;
use std::time::Duration;

use super::entry::end;
use super::fences::{check, number, raise};
use super::{Publish, State};
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Acquire, Answer, Command, Verb};

/// The kind of each of the mutexes.
const ONE: Kind = Kind::Mutex;

impl State {
    /// Executes a command of `manager` for all keys of a lock.
    pub(super) fn answer_all(
        &mut self,
        command: &Command,
        manager: &Arc<str>,
        now: Moment,
        publish: Publish<'_>,
    ) -> Result<Answer, Fault> {
        let kind = command.kind;
        let keys: Vec<&str> = command.names.all().map(|names| names.main()).collect();
        Ok(match (&command.verb, kind) {
            (Verb::Acquire(terms), Kind::All { ordered }) => {
                return self.acquire_all(terms, &keys, ordered, manager, now, publish);
            }
            (Verb::Renew { token, ttl }, _) => self.renew_all(&keys, kind, token, *ttl, now),
            (Verb::Keep { token, .. } | Verb::Check { token }, _) => {
                let answer = self.look_at_all(&keys, kind, token, now);
                if let (Answer::Done, Verb::Keep { time, .. }) = (&answer, &command.verb) {
                    for key in keys {
                        self.entry(key, now).holders.set_end(token, now.after(*time));
                    }
                }
                answer
            }
            (
                Verb::Release { token, waited_for: false, keep: None, tombstone: None },
                Kind::Mutex,
            ) if self.entry(command.names.main(), now).is_unmarked(token) => {
                // Like a plain delete: no waiter is granted the lock.
                self.entry(command.names.main(), now).holders.remove(token);
                Answer::Done
            }
            (Verb::Release { token, keep, tombstone, .. }, _) => {
                let mut answer = Answer::Done;
                for key in &keys {
                    let entry = self.entry(key, now);
                    let one = entry.release(kind, token, keep.as_ref(), now, publish);
                    answer = if answer == Answer::Done { one } else { answer };
                }
                if let (Some(tombstone), Some(first)) = (tombstone, keys.first()) {
                    let until = now.after(*tombstone);
                    self.entry(first, now).leave_tombstone(token, &"".into(), until);
                }
                answer
            }
            (Verb::Raise { token, fence }, _) => {
                for key in keys {
                    raise(&mut self.entry(key, now).fence, token, *fence, now);
                }
                Answer::Done
            }
            (_, Kind::All { .. }) => {
                let what = "several keys can't be asked for that";
                return Err(Fault::new(FaultClass::Permanent, what));
            }
            _ => {
                let entry = self.entry(command.names.main(), now);
                return entry.answer(command, manager, now, publish);
            }
        })
    }

    fn renew_all(
        &mut self,
        keys: &[&str],
        kind: Kind,
        token: &Arc<str>,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Answer {
        let answer = self.look_at_all(keys, kind, token, now);
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
                    if entry.holders.remove(token).is_some() {
                        entry.admit(ONE, Some(token), now, publish);
                    }
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
    fn look_at_all(&mut self, keys: &[&str], kind: Kind, token: &Arc<str>, now: Moment) -> Answer {
        for key in keys {
            let entry = self.entry(key, now);
            if !entry.has(token) {
                return entry.gone(kind, token);
            }
        }
        Answer::Done
    }
}
