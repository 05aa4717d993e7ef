//! LetEnd: of a `Locks` that is shut down, of one that nobody refers to, and of an engine that
//! failed.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::{Core, Work};
use super::path::{Origin, Settled, Traffic};
use super::{Link, SHUT_DOWN};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::error::{Fault, FaultClass};
use crate::lock::Reap;

/// How long a shutdown waits for its releases to be confirmed.
const PATIENCE: Duration = Duration::from_secs(3);

impl Link {
    /// Releases everything and refuses new work. Each call returns when that is done.
    pub(crate) async fn shutdown(&self) {
        let core = self.core();
        if core.is_forked() {
            return;
        }
        let mut ended = core.ended.subscribe();
        let first = !core.closed.swap(true, Ordering::AcqRel);
        if self.thread.get().is_none() {
            // An engine that never started holds nothing.
            return;
        }
        if first {
            core.act(|work| {
                let _let_end = LetEnd(core);
                core.close_all(&LockError::Shutdown, SHUT_DOWN, work);
                core.send(work);
            });
        }
        // When the engine ends, it drops its end of the channel, which counts as an answer.
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

/// Lets the engine end when all that is to be released is queued, and not before: it may look
/// meanwhile, and would find nothing left to be released. A subscriber that panics delays nothing.
struct LetEnd<'a>(&'a Core);

impl Drop for LetEnd<'_> {
    fn drop(&mut self) {
        *self.0.closing.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Moment::now().after(PATIENCE));
        self.0.bell.ring();
    }
}

impl Core {
    /// When a shutdown is over at the latest, if one is under way.
    pub(super) fn closing_ends(&self) -> Option<Moment> {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every hold and every wait, and begins to release their tokens.
    pub(crate) fn close_all(&self, error: &LockError, because: &str, work: &mut Work) {
        self.step_all(work, |machine, env, out| machine.close(error, because, env, out));
    }

    /// The last reference to the `Locks` was dropped: leases that linger are released, then the
    /// engine ends.
    pub(super) fn abandon(&self) {
        self.act(|work| self.close_all(&LockError::Shutdown, SHUT_DOWN, work));
        self.is_abandoned.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether the engine has nothing left to do, and nobody is left who could ask for more.
    pub(crate) fn is_done(&self, now: Moment) -> bool {
        let releases_are_answered = || {
            let is_left = |traffic: &Traffic| traffic.has_first_releases() || traffic.is_in_hand();
            // In this order: what is in hand goes to the reaper, and from there to a queue.
            !self.any_place(is_left) && self.reaper().is_settled() && !self.any_place(is_left)
        };
        match self.closing_ends() {
            Some(end) => now >= end || releases_are_answered() || planted!(HastyShutdown),
            None => {
                let is_left = |traffic: &Traffic| traffic.has_questions() || traffic.is_in_hand();
                self.is_abandoned.load(Ordering::Acquire)
                    && !self.any_place(is_left)
                    && self.reaper().is_empty()
                    && !self.any_place(is_left)
            }
        }
    }

    /// Ends everything without asking the server again.
    pub(crate) fn end_all(&self, error: &LockError, because: &str) {
        self.act(|work| {
            self.close_all(error, because, work);
            self.drop_all(error, work);
        });
    }

    /// Ends every hold and every wait after the engine failed.
    pub(super) fn fail_all(&self) {
        let what = "the lock engine failed and was restarted";
        let fault = Fault::new(FaultClass::Refused, what);
        self.end_all(&LockError::backend(None, &fault), what);
    }

    /// Drops what is on the queue, on its way, or waits for another try.
    fn drop_all(&self, error: &LockError, work: &mut Work) {
        // What is refused at once, because nothing is connected, is there already.
        let refused = std::mem::take(&mut work.settled).into_iter().map(Settled::into_origin);
        let paused = self.reaper().drain();
        // Dropping the other end of the channel counts as an answer.
        let drained: Vec<_> =
            self.places.all().iter().map(|place| place.path.traffic().drain()).collect();
        let queued = drained.into_iter().flat_map(|(origins, _ready)| origins);
        let queued = refused.chain(queued).filter_map(reap_of);
        for reap in paused.chain(queued) {
            if let Some(confirm) = reap.give_up() {
                work.notices
                    .push_back(super::notices::Notice::Confirm(confirm, Err(error.clone())));
            }
        }
    }

    fn any_place(&self, is: impl Fn(&Traffic) -> bool) -> bool {
        self.places.all().iter().any(|place| is(&place.path.traffic()))
    }

    /// Refuses what is asked of these paths from now on.
    pub(super) fn stop_paths(&self) {
        for place in self.places.all().iter() {
            place.path.traffic().stop();
        }
    }

    /// Reports that the engine has ended.
    pub(super) fn notify_end(&self) {
        self.ended.send_replace(true);
        self.notices.end();
    }
}

/// The release that something in a queue is, or is a part of.
fn reap_of(origin: Origin) -> Option<Box<Reap>> {
    match origin {
        Origin::Reap(reap) => Some(reap),
        Origin::Part(gathering, _) => reap_of(gathering.take_origin()?),
        Origin::Lock(..) | Origin::Query(_) | Origin::Ping => None,
    }
}
