//! Commands for all keys of a lock: one, or several mutexes that are taken together.

use std::sync::Arc;
use std::time::Duration;

use super::entry::end;
use super::fences::{check, number, raise};
use super::{Execution, State};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::kind::Kind;
use crate::store::{Acquire, Answer, Command, Verb};

/// The kind of each of the mutexes.
const ONE: Kind = Kind::Mutex;

impl State {
    /// Executes a command of `manager` for all keys of a lock.
    pub(super) fn answer_all(
        &mut self,
        command: &Command,
        run: &mut Execution<'_>,
    ) -> Result<Answer, Fault> {
        let kind = command.kind;
        let keys: Vec<&str> = command.names.all().map(|names| names.main()).collect();
        Ok(match (&command.verb, kind) {
            (Verb::Acquire(terms), Kind::All { ordered }) => {
                return self.acquire_all(terms, &keys, ordered, run);
            }
            (Verb::Renew { token, ttl }, _) => self.renew_all(&keys, kind, token, *ttl, run.now),
            (Verb::Keep { token, .. } | Verb::Check { token }, _) => {
                let answer = self.look_at_all(&keys, kind, token, run.now);
                if let (Answer::Done, Verb::Keep { time, .. }) = (&answer, &command.verb) {
                    for key in keys {
                        self.entry(key, run.now).holders.set_end(token, run.now.after(*time));
                    }
                }
                answer
            }
            (
                Verb::Release { token, waited_for: false, keep: None, tombstone: None, .. },
                Kind::Mutex,
            ) if self.entry(command.names.main(), run.now).is_unmarked(token) => {
                // Like a plain delete: no waiter is granted the lock.
                self.entry(command.names.main(), run.now).holders.remove(token);
                Answer::Done
            }
            (Verb::Release { token, keep, share, tombstone, .. }, _) => {
                let mut answer = Answer::Done;
                for key in &keys {
                    let entry = self.entry(key, run.now);
                    let one = entry.release(kind, token, keep.as_ref(), share.as_ref(), run);
                    answer = if answer == Answer::Done { one } else { answer };
                }
                if let (Some(tombstone), Some(first)) = (tombstone, keys.first()) {
                    let until = run.now.after(*tombstone);
                    self.entry(first, run.now).leave_tombstone(token, &"".into(), until);
                }
                answer
            }
            (Verb::Raise { token, fence }, _) => {
                for key in keys {
                    raise(&mut self.entry(key, run.now).fence, token, *fence, run.now);
                }
                Answer::Done
            }
            (_, Kind::All { .. }) => {
                let what = "several keys can't be asked for that";
                return Err(Fault::new(FaultClass::Permanent, what));
            }
            _ => {
                let entry = self.entry(command.names.main(), run.now);
                return entry.answer(command, run);
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
        let none = Answer::Renewed { longer: None, waited_for: false, slot: None };
        let renewed = keys.iter().filter_map(|key| self.entry(key, now).renew(token, ttl, now));
        renewed.fold(none, |all, one| all.and(&one))
    }

    fn acquire_all(
        &mut self,
        terms: &Acquire,
        keys: &[&str],
        ordered: bool,
        run: &mut Execution<'_>,
    ) -> Result<Answer, Fault> {
        let Acquire { token, ttl, queue, fair, fences, .. } = terms;
        if keys.first().is_some_and(|first| self.entry(first, run.now).has_tombstone(token)) {
            return Ok(Answer::Tombstone);
        }
        for key in keys {
            let entry = self.entry(key, run.now);
            entry.check_family(ONE)?;
            check(entry.fence.as_ref(), *fences, run.now)?;
        }
        let mut blocker = None;
        for (at, key) in keys.iter().enumerate() {
            let entry = self.entry(key, run.now);
            if entry.holders.is_empty() && *fair {
                entry.admit(ONE, Some(token), run);
            }
            if !entry.has(token) && !entry.holders.is_empty() && blocker.is_none() {
                blocker = Some((at, entry.blocker(ONE, queue.is_some(), run.now)));
            }
        }
        for (at, key) in keys.iter().enumerate() {
            let entry = self.entry(key, run.now);
            match (&blocker, queue) {
                (None, _) => {
                    entry.leave(token);
                    entry.put(token, ONE, end(run.now, *ttl));
                }
                (Some((busy, _)), Some(place)) if at == *busy => {
                    entry.enqueue(token, ONE, false, run.now.after(*place), run.manager);
                    entry.ask_to_hand_over(key, run);
                }
                (Some((busy, _)), Some(place)) if ordered && at < *busy => {
                    entry.leave(token);
                    entry.put(token, ONE, run.now.after(*place));
                    entry.holders.set_end(token, run.now.after(*place));
                }
                (Some(_), _) => {
                    entry.leave(token);
                    if entry.holders.remove(token).is_some() {
                        entry.admit(ONE, Some(token), run);
                    }
                }
            }
        }
        if let Some((_, blocker)) = blocker {
            return Ok(Answer::Busy(blocker));
        }
        let fence = (*fences > 0).then(|| self.number_of_all(keys, token, *fences, run.now));
        Ok(Answer::Held { fence, slot: None })
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
