//! Releases that have failed.
//!
//! Whatever asks for a key must come behind the releases that are owed for it. So a release that has
//! failed finds its next place while the queue is still locked: nobody can ask for its key between its
//! failure and its next try.

use std::sync::Arc;

use super::{ConnectionState, FailedRelease, QueueEntry, Settled, Traffic};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::names::Names;
use crate::engine::reaper::SharedReaper;
use crate::lock::{Next, Outcome, Reap};

impl Traffic {
    /// Has releases that fail kept here until they are tried again. Only for an arbiter of one place:
    /// with several, another place may have the key meanwhile.
    pub(crate) fn owe_to(&mut self, reaper: Arc<SharedReaper>) {
        self.reaper = Some(reaper);
    }

    /// Finds the next place of a release that has failed. `unsent` is how many entries wait behind it.
    pub(super) fn release_failed(
        &mut self,
        reaper: &SharedReaper,
        (reap, sent): (Box<Reap>, Moment),
        outcome: Outcome,
        unsent: usize,
    ) -> Option<Settled> {
        let (Outcome::Refused(fault) | Outcome::Unknown(fault)) = &outcome else { return None };
        let (key, fault) = (reap.names().user_key().to_owned(), fault.clone());
        let now = Moment::now();
        let (mut confirmation, next) = reap.outcome(outcome, sent, now);
        let due = match next {
            Next::Done(_) => Some(Moment::NEVER),
            Next::Again(at, reap) => {
                if self.is_to_be_sent_first(&reap, at <= now, unsent) {
                    self.deadline_check = self.deadline_check.min(reap.deadline());
                    self.waiting.push_front(QueueEntry::reap(reap, now));
                    None
                } else {
                    if let Some(reap) = reaper.lock().keep(at, reap) {
                        let told =
                            reap.give_up().map(|confirm| (confirm, Err(LockError::Shutdown)));
                        confirmation = told.or(confirmation);
                    }
                    Some(at)
                }
            }
        };
        Some(Settled::Failed(Box::new(FailedRelease { key, fault, confirmation, due })))
    }

    /// Whether a release has to be sent before what is in the queue, which is the case for one that is
    /// due, and for one whose key somebody asks for there.
    fn is_to_be_sent_first(&self, reap: &Reap, is_due: bool, unsent: usize) -> bool {
        match &self.connection {
            ConnectionState::Down(_) | ConnectionState::Retired => false,
            ConnectionState::Unused | ConnectionState::Connecting | ConnectionState::Up(_) => {
                is_due || self.waiting.iter().rev().take(unsent).any(|it| it.asks_for(reap.names()))
            }
        }
    }
}

impl QueueEntry {
    fn asks_for(&self, names: &Names) -> bool {
        let command = self.command.as_ref().filter(|command| command.verb.acquires());
        command.is_some_and(|command| {
            command.names.all().any(|asked| names.all().any(|it| it.main() == asked.main()))
        })
    }
}
