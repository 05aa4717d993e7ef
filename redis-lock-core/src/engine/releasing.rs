//! Handles the outcome of a release, and repeats releases.

use std::time::Duration;

use super::core::{Core, Work};
use super::notices::Notice;
use super::path::QueueEntry;
use super::reaper::Reaper;
use super::shutdown::given_up;
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::names::Names;
use crate::lock::{Next, Outcome, Outgoing, Reap};
use crate::observe::{self, Observation};

/// So many of the last releases of a server that was replaced are repeated at once, and as many after
/// each pause: all processes do so at the same time, and their callers want locks of its successor.
const AGAIN_AT_ONCE: usize = 32;
const AGAIN_PAUSE: Duration = Duration::from_millis(25);

impl Core {
    /// The outcome of a try to release a token.
    pub(super) fn reaped(&self, reap: Box<Reap>, outcome: Outcome, sent: Moment, work: &mut Work) {
        if let (Outcome::Refused(fault) | Outcome::Unknown(fault), true) =
            (&outcome, observe::may_be_heard())
        {
            let (key, fault) = (reap.names().user_key().to_owned(), fault.clone());
            work.notices.push_back(Notice::observe(Observation::Failed(key, reap.sort(), fault)));
        }
        let now = Moment::now();
        let (confirmation, next) = reap.outcome(outcome, sent, now);
        work.notices.extend(confirmation.map(Notice::confirm));
        match next {
            // With only one server, nothing has to be released again.
            Next::Done(_) if self.places.only().is_some() => {}
            Next::Done(reap) => {
                let place_of = |names: &Names| self.places.of(names.main()).id;
                let others = match reap.is_split() {
                    true => reap.names().all().skip(1).map(place_of).collect(),
                    false => Vec::new(),
                };
                let place = place_of(reap.names());
                self.released.lock().add(reap, (place, others), now);
            }
            Next::Again(at, reap) => self.release_at(at, reap, now, work),
        }
    }

    /// Releases a token once more, now or at this time.
    fn release_at(&self, at: Moment, reap: Box<Reap>, now: Moment, work: &mut Work) {
        if at <= now {
            return self.put(QueueEntry::reap(reap, now), work);
        }
        let refused = self.reaper.lock().keep(at, reap);
        work.notices.extend(refused.and_then(|reap| given_up(reap, &LockError::Shutdown)));
        self.waker.wake_by(at);
    }

    /// Has the releases that are still owed for some keys sent before the keys are asked for again. To be
    /// called under the lock of the machine's shard.
    pub(super) fn release_owed(&self, out: &mut Vec<Outgoing>) {
        if self.pending.is_empty() {
            return;
        }
        let Some((at, names)) =
            out.iter().enumerate().find_map(|(at, outgoing)| Some((at, outgoing.acquires()?)))
        else {
            return;
        };
        let owed: Vec<_> = self.reaper.lock().take_owed(names).map(Outgoing::Part).collect();
        out.splice(at..at, owed);
    }

    /// Puts releases from the reaper on their queues. All are taken first: those that are refused at once
    /// go back.
    pub(super) fn put_reaps<I: Iterator<Item = Box<Reap>>>(
        &self,
        take: impl FnOnce(&mut Reaper) -> I,
        work: &mut Work,
    ) {
        let now = Moment::now();
        let reaps = take(&mut self.reaper.lock());
        reaps.for_each(|reap| self.put(QueueEntry::reap(reap, now), work));
    }

    /// A server has left the map: its successor may still have tokens that it released. The last ones
    /// are the likeliest, and come before callers that want a lock there.
    pub(super) fn release_again(&self, work: &mut Work) {
        let now = Moment::now();
        let again = self.released.lock().take_moved(now, |main| self.places.of(main).id);
        for (newer, reap) in again {
            // A shutdown does not wait for those of later.
            let parts_before = if self.is_shut() { 0 } else { newer / AGAIN_AT_ONCE };
            let pauses = u32::try_from(parts_before).unwrap_or(u32::MAX);
            self.release_at(now.after(AGAIN_PAUSE * pauses), reap.repeated(), now, work);
        }
        self.send(work);
    }
}
