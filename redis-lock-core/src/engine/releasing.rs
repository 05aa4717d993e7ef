//! Handles the outcome of a release, and repeats releases.

use super::core::{Core, Work};
use super::notices::Notice;
use super::path::QueueEntry;
use crate::domain::clock::Moment;
use crate::lock::{Next, Outcome, Reap};
use crate::observe;

impl Core {
    /// The outcome of a try to release a token.
    pub(super) fn reaped(&self, reap: Box<Reap>, outcome: Outcome, sent: Moment, work: &mut Work) {
        if let (Outcome::Refused(fault) | Outcome::Unknown(fault), true) =
            (&outcome, observe::is_listening())
        {
            let key = reap.names().user_key().to_owned();
            work.notices.push_back(Notice::Failed(key, fault.clone()));
        }
        let now = Moment::now();
        let (confirmation, next) = reap.outcome(outcome, sent, now);
        work.notices
            .extend(confirmation.map(|(confirm, outcome)| Notice::Confirm(confirm, outcome)));
        match next {
            // With only one server, nothing has to be released again.
            Next::Done(_) if self.places.only().is_some() => {}
            Next::Done(reap) => {
                let place = self.places.of(reap.names().main()).id;
                self.released().add(place, reap, now);
            }
            Next::Again(at, reap) if at <= now => self.put(QueueEntry::reap(reap, now), work),
            Next::Again(at, reap) => {
                self.reaper().add(at, reap);
                self.waker.wake_by(at);
            }
        }
    }

    /// A server has left the map: another one may still have tokens that it released.
    pub(super) fn release_again(&self, work: &mut Work) {
        let now = Moment::now();
        let again = self.released().take(now);
        for reap in again {
            self.put(QueueEntry::reap(reap.repeated(), now), work);
        }
        self.send(work);
    }
}
