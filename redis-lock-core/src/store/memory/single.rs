//! What is done at one key of a lock.

use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use super::entry::{Entry, QUEUE_GRACE, StoredWaiter, end};
use super::fences::{check, number};
use crate::domain::fault::Fault;
use crate::domain::kind::Kind;
use crate::domain::mark::Mark;
use crate::domain::value::StoredValue;
use crate::store::{Acquire, Answer, Blocker, Command, Event, Keep, PLACE, Verb};

/// How many waiters are notified at once of a completion. The others find out when they look.
const MOST_TOLD: usize = 32;

impl Entry {
    /// Executes a command of `manager`.
    pub(super) fn answer(
        &mut self,
        command: &Command,
        run: &mut Execution<'_>,
    ) -> Result<Answer, Fault> {
        let kind = command.kind;
        let answer = match &command.verb {
            Verb::Take { token, ttl } => {
                if !self.holders.is_empty() {
                    return Ok(Answer::Busy(Blocker::unknown()));
                }
                // It does not look at the queue, so the value is not marked either.
                self.add(token, kind, end(run.now, *ttl), false);
                Answer::Held { fence: None, slot: None }
            }
            Verb::Acquire(terms) => return self.acquire(terms, command, run),
            Verb::Why { token } => Answer::Gone { by: None, because: self.reason(token) },
            Verb::Downgrade { token } => match self.holders.get(token).map(|holder| holder.kind) {
                // It was downgraded before, so nothing changes.
                Some(Kind::Read) => Answer::Done,
                Some(_) => {
                    self.holders.downgrade(token);
                    self.admit(kind, None, run);
                    Answer::Done
                }
                None => self.gone(kind, token),
            },
            Verb::Newer { token } if self.is_superseded(token) => Answer::Superseded { held: true },
            Verb::InUse { asker } => {
                let token = asker.to_string();
                run.tell_manager_of(asker, Event::Granted { token, waited_for: false });
                Answer::Done
            }
            Verb::Newer { .. } | Verb::Ping | Verb::Probe => Answer::Done,
            Verb::Fetch => {
                let stored = self.value.as_ref().map(|(value, _)| value.clone());
                Answer::Value(Some(stored.unwrap_or_else(|| StoredValue::new(""))))
            }
            Verb::Look => Answer::Seen(Box::new(self.server_view(run.now))),
            Verb::Force { foreign: Some(value), .. } => {
                let answer = self.release(kind, value, None, None, run);
                if answer == Answer::Done {
                    self.value.take_if(|(value, _)| value.is_ours());
                }
                answer
            }
            Verb::Force { tokens, because, .. } => self.force(tokens, because, run),
            // Answered for all keys at once.
            Verb::Renew { .. }
            | Verb::Keep { .. }
            | Verb::Check { .. }
            | Verb::Raise { .. }
            | Verb::Release { .. }
            | Verb::Scan { .. } => Answer::Done,
        };
        Ok(answer)
    }

    /// Whether a token has the lock, and no waiter has arrived since it took it.
    pub(super) fn is_unmarked(&self, token: &Arc<str>) -> bool {
        self.holders.get(token).is_some_and(|holder| !holder.waited_for)
    }

    pub(super) fn release(
        &mut self,
        kind: Kind,
        token: &Arc<str>,
        keep: Option<&Keep>,
        share: Option<&(StoredValue, Duration)>,
        run: &mut Execution<'_>,
    ) -> Answer {
        let has_it = match keep {
            Some(keep) => self.keep(kind, token, keep, run),
            None => self.holders.remove(token).is_some(),
        };
        if planted!(MarkReleased) && keep.is_none() {
            let mark = self.holders.first().map(|holder| Arc::clone(&holder.token));
            let is_its =
                |mark: &Arc<str>| Mark::read(mark).is_some_and(|it| *it.token.wire() == *token);
            mark.filter(is_its).map(|mark| self.holders.remove(&mark));
        }
        if let (Some((value, time)), true) = (share, has_it && kind == Kind::Mutex) {
            let until = run.now.after(*time);
            self.entitle(value, until, run);
        }
        let answer = if has_it {
            Answer::Done
        } else {
            self.leave(token);
            self.gone(kind, token)
        };
        // Also after a waiter has left the queue, since those behind it may fit. A mutex that is
        // kept can't be granted to anybody.
        let free = answer == Answer::Done && keep.is_none();
        if free || !kind.is_value() && self.check_family(kind).is_ok() {
            self.admit(kind, None, run);
        }
        answer
    }

    /// Keeps the lock of a token that is released. Returns whether the token held it.
    fn keep(&mut self, kind: Kind, token: &Arc<str>, keep: &Keep, run: &mut Execution<'_>) -> bool {
        let end = run.now.after(keep.time);
        // Where the mark is the token itself, it only lasts as long as it is kept.
        if !kind.is_value() || keep.mark == *token {
            return self.holders.set_end(token, end);
        }
        if self.holders.remove(token).is_none() {
            return false;
        }
        self.add(&keep.mark, Kind::Mutex, end, false);
        if let Some(value) = keep.value.as_ref().filter(|_| !planted!(ValueForgotten)) {
            self.store(value, end);
        }
        if Mark::read_done(&keep.mark).is_some() {
            let now = run.now;
            // Those of other kinds can't take the lock of a mutex.
            let told = |waiter: &&StoredWaiter| waiter.until > now && waiter.kind.is_value();
            for waiter in self.queue.iter().take(MOST_TOLD).filter(told) {
                run.wake(&waiter.manager, &waiter.token, false);
            }
        }
        true
    }

    fn acquire(
        &mut self,
        terms: &Acquire,
        command: &Command,
        run: &mut Execution<'_>,
    ) -> Result<Answer, Fault> {
        let Acquire { token, ttl, fair, fences, .. } = terms;
        let kind = command.kind;
        if terms.share
            && let Some(value) = self.collect(token)
        {
            return Ok(Answer::Shared(value));
        }
        if self.has_tombstone(token) {
            return Ok(Answer::Tombstone);
        }
        self.check_family(kind)?;
        check(self.fence.as_ref(), *fences, run.now)?;
        if let Some(limit) = kind.limit()
            && let Some(other) = self.holders.other_limit(limit)
        {
            crate::observe::log::limits_differ(command.names.user_key(), limit, other);
        }
        let is_new = match terms.newest.map_or(Ok(false), |question| self.is_new(token, question)) {
            Ok(is_new) => is_new,
            Err(answer) => return Ok(answer),
        };
        if !self.has(token) {
            // While a mutex is held, the rest of the queue makes no difference.
            let held = kind.is_value() && !self.holders.is_empty();
            let first = !fair || held || self.admit(kind, Some(token), run);
            if !first || !self.fits(kind) {
                return Ok(self.not_granted(terms, command, is_new, run));
            }
        }
        if is_new && !self.latest.is_empty() {
            self.add_newest(token);
        }
        self.leave(token);
        self.put(token, kind, end(run.now, *ttl));
        if terms.slotted {
            self.holders.number(token);
        }
        if !kind.is_value() {
            // The next waiters may fit as well: consecutive readers are granted the lock together.
            self.admit(kind, Some(token), run);
        }
        let fence = (*fences > 0).then(|| number(&mut [&mut self.fence], token, *fences, run.now));
        let slot = self.holders.get(token).and_then(|holder| holder.slot);
        Ok(Answer::Held { fence, slot })
    }

    /// The answer to a token that has to wait, which is put into the queue if it asked for a place.
    fn not_granted(
        &mut self,
        terms: &Acquire,
        command: &Command,
        is_new: bool,
        run: &mut Execution<'_>,
    ) -> Answer {
        let (Acquire { token, queue, .. }, kind) = (terms, command.kind);
        if let Some(waiting) = self.crowd(token, terms.most_waiting, run) {
            let Blocker { value: holder, ttl: left, .. } = self.blocker(kind, false, run.now);
            return Answer::Crowded { waiting, holder, left };
        }
        let known_until = run.now.after(PLACE).after(QUEUE_GRACE);
        if is_new {
            self.come_last(token, known_until, run);
        } else if terms.newest.is_some()
            && let Some(end) = &mut self.latest_end
        {
            *end = known_until;
        }
        let ask = terms.ask.filter(|_| self.may_be_idle(kind));
        if queue.is_none() && !planted!(PlaceKept) {
            self.leave(token);
        }
        let queued = queue.or(ask);
        if let Some(place) = queued {
            self.enqueue(token, kind, terms.slotted, run.now.after(place), run.manager);
        }
        let asked = ask.is_some();
        let blocker = self.blocker(kind, queued.is_some(), run.now);
        if terms.newest.is_some() {
            Self::ask_to_leave(blocker.value.as_deref(), run);
        }
        let key = command.names.main();
        if queue.is_some() {
            self.ask_to_hand_over(key, run);
        } else if let (true, Some(holder)) = (asked, &blocker.value) {
            let (key, token) = (key.to_owned(), token.to_string());
            run.tell_manager_of(holder, Event::Asked { key, token });
        }
        Answer::Busy(Blocker { asked, ..blocker })
    }

    /// The answer to a token that does not have the lock.
    pub(super) fn gone(&self, kind: Kind, token: &Arc<str>) -> Answer {
        let because = self.reason(token);
        if because.is_some() {
            return Answer::Gone { by: None, because };
        }
        let holder = self.holders.first().filter(|_| kind.is_value());
        let by = holder.map(|holder| holder.token.to_string());
        Answer::Gone { by, because: None }
    }

    /// Why the hold of a token was ended by force, if it was.
    pub(super) fn reason(&self, token: &Arc<str>) -> Option<String> {
        let tombstone =
            self.tombstones.get(token).filter(|tombstone| !tombstone.reason.is_empty())?;
        Some(tombstone.reason.to_string())
    }
}
