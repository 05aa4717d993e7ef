//! Releases that have failed.
//!
//! Whatever asks for a key must come behind the releases that are owed for it. So a release that has
//! failed finds its next place while the queue is still locked: no caller can ask for its key between its
//! failure and its next try.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{ConnectionState, FailedRelease, PathReaper, QueueEntry, SentEntry, Settled, Traffic};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::names::Names;
use crate::engine::lock_id::PlaceId;
use crate::lock::{Next, Outcome, Reap};

impl Traffic {
    /// Has releases that fail kept here until they are tried again. Of several places, this one has a
    /// number: another one may have the key by then.
    pub(crate) fn owe_to(&mut self, reaper: Arc<PathReaper>, place: Option<PlaceId>) {
        (self.reaper, self.place) = (Some(reaper), place);
    }

    /// Finds the next place of a release that has failed. `unsent` is how many entries wait behind it.
    pub(super) fn release_failed(
        &mut self,
        reaper: &PathReaper,
        (reap, sent): (Box<Reap>, Moment),
        outcome: Outcome,
        unsent: usize,
        results: &mut Vec<Settled>,
    ) {
        let (Outcome::Refused(fault) | Outcome::Unknown(fault)) = &outcome else { return };
        let names = reap.names().clone();
        let (key, sort) = (reap.names().user_key().to_owned(), reap.sort());
        let fault = fault.clone();
        let now = Moment::now();
        let (mut confirmation, next) = reap.outcome(outcome, sent, now);
        let due = match next {
            Next::Done(reap) => {
                reaper.lock().stops(&reap);
                Some(Moment::NEVER)
            }
            Next::Again(at, reap) => {
                if self.is_to_be_sent_first(&reap, at <= now, unsent) {
                    self.deadline_check = self.deadline_check.min(reap.deadline());
                    self.waiting.push_front(QueueEntry::reap(reap, now));
                    None
                } else {
                    if let Some(reap) = reaper.lock().keep(at, reap) {
                        let given_up =
                            reap.give_up().map(|confirm| (confirm, Err(LockError::Shutdown)));
                        confirmation = given_up.or(confirmation);
                    }
                    Some(at)
                }
            }
        };
        let failed = FailedRelease { key, sort, fault, confirmation, due };
        results.push(Settled::Failed(Box::new(failed)));
        self.send_behind_elsewhere(&names, results);
    }

    /// Whether a release has to be sent before what is in the queue, which is the case for one that is
    /// due, and for one whose key a caller asks for there.
    fn is_to_be_sent_first(&self, reap: &Reap, is_due: bool, unsent: usize) -> bool {
        match &self.connection {
            // The next try goes where the map says.
            _ if self.place.is_some() => false,
            ConnectionState::Down(_) | ConnectionState::Retired => false,
            ConnectionState::Unused | ConnectionState::Connecting | ConnectionState::Up(_) => {
                is_due || self.waiting.iter().rev().take(unsent).any(|it| it.asks_for(reap.names()))
            }
        }
    }
}

/// Of several places.
impl Traffic {
    /// Notes where the release is that an entry is for.
    pub(super) fn note_release(&self, entry: &QueueEntry, at: Option<PlaceId>) {
        if let (Some(_), Some(reaper)) = (self.place, &self.reaper)
            && let Some((names, token)) = entry.first_release()
        {
            // Of one that was split, a part for some of the keys.
            let part = entry.command.as_ref().map(|command| &command.names);
            reaper.lock().goes_to(part.unwrap_or(&names), &token, at);
        }
    }

    /// Notes that an entry is not in this queue any more.
    pub(super) fn left(&self, entry: &SentEntry) {
        if let (Some(place), Some(reaper)) = (self.place, &self.reaper)
            && let Some((names, token)) = entry.origin.first_release()
        {
            reaper.lock().leaves(&names, &token, place);
        }
    }

    /// Part of a release has failed, so what asks for its keys behind it waits for the next try.
    pub(super) fn let_go(&mut self, entry: &SentEntry, results: &mut Vec<Settled>) {
        self.left(entry);
        if let Some((names, _)) = entry.origin.first_release() {
            self.send_behind_elsewhere(&names, results);
        }
    }

    /// Has entries of this queue put where their keys are now.
    pub(super) fn send_elsewhere(
        &mut self,
        entries: VecDeque<QueueEntry>,
        results: &mut Vec<Settled>,
    ) {
        for entry in entries {
            self.left(&entry);
            results.push(Settled::Redirected(Box::new(entry), None));
        }
    }

    /// Has what asks for these keys, and was not sent yet, put behind their release.
    pub(super) fn send_behind_elsewhere(&mut self, names: &Names, results: &mut Vec<Settled>) {
        if self.place.is_none() || self.waiting.is_empty() {
            return;
        }
        let asks = |entry: &QueueEntry| entry.asks_for(names);
        let (behind, others) = std::mem::take(&mut self.waiting).into_iter().partition(asks);
        self.waiting = others;
        self.send_elsewhere(behind, results);
    }

    /// Whether what is put here is refused at once.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.connection, ConnectionState::Down(_))
    }
}

impl QueueEntry {
    /// The keys that it is to acquire, if it is an acquisition.
    pub(crate) fn acquires(&self) -> Option<Names> {
        let command = self.command.as_ref().filter(|command| command.verb.acquires())?;
        Some(command.names.clone())
    }

    /// The keys and the token of the release that it is for, wholly or in part, unless that was answered.
    pub(crate) fn first_release(&self) -> Option<(Names, Arc<str>)> {
        self.origin.first_release()
    }

    fn asks_for(&self, names: &Names) -> bool {
        self.acquires().is_some_and(|asked| {
            asked.all().any(|asked| names.all().any(|it| it.main() == asked.main()))
        })
    }
}
