//! Ends the engine: when a `Locks` is shut down, when its last reference is dropped, or when the
//! engine has failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Link;
use super::core::{Core, Work};
use super::notices::Notice;
use super::path::{AskedBy, Settled, Told, Traffic};
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::lock::{Machine, Reap};
use crate::{Drained, LockError, LossReason};

/// How long a shutdown waits for its releases to be confirmed.
const PATIENCE: Duration = Duration::from_secs(3);

impl Link {
    /// Releases everything and refuses new work. Each caller waits until that is done.
    pub(crate) async fn shutdown(&self) {
        let core = self.core();
        if core.is_forked() {
            return;
        }
        // It also watches the threads that tell others about the shutdown.
        self.start();
        core.act(|work| core.close(work));
        core.stages.until(|| core.has_ended.load(Ordering::SeqCst).then_some(())).await;
    }

    /// Refuses new locks, and shuts down when the last guard is gone, or after `limit`. The engine does
    /// that even if the future is dropped.
    pub(crate) async fn drain(&self, limit: Duration) -> Drained {
        let core = self.core();
        if core.is_forked() {
            return Drained { cut_off: 0 };
        }
        if core.drain.set(Moment::now().after(limit)).is_ok() {
            self.start();
            core.act(|work| {
                core.step_where(&|_| true, work, |machine, env| {
                    machine.refuse_all(&LockError::Shutdown, env);
                });
                core.leave(&mut work.notices);
            });
            core.tell_stage();
        }
        let drained = core.stages.until(|| core.drained.get().copied()).await;
        self.shutdown().await;
        drained
    }

    /// Waits until a drain or a shutdown begins.
    pub(crate) async fn draining(&self) {
        let core = self.core();
        core.stages.until(|| (core.is_draining() || core.is_closed()).then_some(())).await;
    }
}

/// Allows the engine to end. This happens on drop, after all releases were queued: before that, the
/// engine would find nothing to wait for. It also happens when a subscriber panics.
pub(super) struct LetEnd<'a>(pub(super) &'a Core);

impl Drop for LetEnd<'_> {
    fn drop(&mut self) {
        *self.0.closing.lock() = Some(Moment::now().after(PATIENCE));
        self.0.waker.wake();
    }
}

impl Core {
    /// When a shutdown that is under way gives up waiting.
    pub(super) fn closing_ends(&self) -> Option<Moment> {
        *self.closing.lock()
    }

    /// Ends every hold and every wait, and queues the releases of their tokens.
    pub(crate) fn close_all(&self, error: &LockError, reason: &LossReason, work: &mut Work) {
        self.step_where(&|_| true, work, |machine, env| machine.close(error, reason, env));
    }

    /// The last reference to the `Locks` was dropped: idle leases are released, then the engine
    /// ends.
    pub(super) fn abandon(&self) {
        self.act(|work| self.close_all(&LockError::Shutdown, &LossReason::Shutdown, work));
        self.is_abandoned.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the engine has nothing left to do and no requests can come.
    pub(crate) fn is_done(&self, now: Moment) -> bool {
        // What is in hand may go to the reaper, and from there to a queue.
        let is_answered = || self.pending.is_empty() && !self.any_place(Traffic::is_left);
        match self.closing_ends() {
            Some(end) => now >= end || is_answered() || planted!(HastyShutdown),
            None => {
                let is_left = |traffic: &Traffic| traffic.has_questions() || traffic.is_left();
                self.is_abandoned.load(Ordering::Acquire)
                    && !self.any_place(is_left)
                    && self.reaper.lock().is_empty()
                    && !self.any_place(is_left)
            }
        }
    }

    /// Ends all holds and waits without sending anything. The notices about that are left in
    /// `work`.
    pub(crate) fn end_all(&self, error: &LockError, reason: &LossReason, work: &mut Work) {
        self.close_all(error, reason, work);
        self.drop_all(error, work);
    }

    /// Ends every hold and every wait after the engine failed.
    pub(super) fn fail_all(&self) {
        #[cfg(test)]
        self.crash_if_planted();
        let what = "the lock engine failed and was restarted";
        let fault = Fault::new(FaultClass::Refused, what);
        let mut work = Work::default();
        let reason = LossReason::Removed { because: Some(what.into()) };
        self.end_all(&LockError::backend(None, &fault), &reason, &mut work);
        self.notices.add(&mut work.notices);
        // The next engine may fail before it hands anything on.
        self.notices.hand_to_thread(self.notifier());
    }

    /// Ends the engine: everything in it, and whatever still comes. The notices about that are left
    /// in `work`.
    pub(crate) fn end(&self, work: &mut Work) {
        self.closed.store(true, Ordering::Release);
        // Readers may have outcomes in hand that find their next place only after this.
        self.reaper.lock().end();
        if let Some(several) = self.places.as_several() {
            several.end();
        }
        self.end_all(&LockError::Shutdown, &LossReason::Shutdown, work);
        self.stop_paths();
        // What was put meanwhile is refused as well.
        self.drop_all(&LockError::Shutdown, work);
        self.stop_paths();
    }

    /// Drops all entries of all places, and the tokens that wait for another try.
    fn drop_all(&self, error: &LockError, work: &mut Work) {
        // Entries that were refused at once, because there is no connection, are settled already.
        let settled = std::mem::take(&mut work.settled).into_iter();
        let paused = self.reaper.lock().drain().map(AskedBy::Reap);
        let mut origins: Vec<_> = settled.map(Settled::into_origin).chain(paused).collect();
        for place in self.places.all().iter() {
            let (drained, ready) = place.path.traffic().drain();
            origins.extend(drained);
            let stopped = |reply| Notice::Told(Told::ready(reply, Err(Fault::stopped())));
            work.notices.extend(ready.into_iter().map(stopped));
        }
        self.wake_deposed();
        let told = origins.into_iter().filter_map(|origin| dropped(origin, error));
        work.notices.extend(told.map(Notice::Told));
    }

    /// Wakes tasks that read at places with nothing left to read.
    fn wake_deposed(&self) {
        for place in self.places.all().iter() {
            place.path.wake_deposed();
        }
    }

    fn any_place(&self, is: impl Fn(&Traffic) -> bool) -> bool {
        self.places.all().iter().any(|place| is(&place.path.traffic()))
    }

    /// Closes all paths, which refuse new entries from now on.
    pub(super) fn stop_paths(&self) {
        for place in self.places.all().iter() {
            place.path.traffic().stop();
        }
    }

    /// Reports that the engine has ended. The notices about that are left to be carried out.
    pub(super) fn notify_end(&self) {
        let _ = self.drained.set(Drained { cut_off: 0 });
        self.has_ended.store(true, Ordering::SeqCst);
        if self.notices.are_stuck() {
            // There is no other thread left that could wake them.
            (0..self.stages.count()).for_each(|_| self.stages.wake_one());
        }
        self.tell_stage();
    }

    /// Whether new locks are refused because of a drain.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.get().is_some()
    }

    /// Ends a drain when it is time to. Returns when to look again.
    pub(super) fn drain_if_due(&self, now: Moment, work: &mut Work) -> Moment {
        let Some(end) = self.drain.get().copied().filter(|_| !self.is_shut()) else {
            return Moment::NEVER;
        };
        // What has lapsed with a margin may still be acted upon.
        let lasts = |machine: &Machine<_>| machine.is_held() || machine.has_lapsed();
        if self.table.count(lasts) > 0 && now < end {
            return end.min(now.after(LOOK_PAUSE));
        }
        self.close(work);
        Moment::NEVER
    }

    /// Tells those who wait for it that a drain or a shutdown has begun or ended.
    pub(super) fn tell_stage(&self) {
        self.wake_each(Arc::clone(&self.stages), self.stages.count());
    }

    /// Ends every hold and every wait for a shutdown, once.
    pub(super) fn close(&self, work: &mut Work) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let _let_end = LetEnd(self);
        let drained = Drained { cut_off: self.table.count(Machine::is_held) };
        self.close_all(&LockError::Shutdown, &LossReason::Shutdown, work);
        let _ = self.drained.set(drained);
        self.tell_stage();
        self.leave(&mut work.notices);
        // It does not wait for those that are only repeated, so they are sent now.
        self.put_reaps(|reaper| reaper.take_due(Moment::NEVER), work);
        self.send(work);
    }
}

/// The error for the caller of a dropped entry.
fn dropped(origin: AskedBy, error: &LockError) -> Option<Told> {
    match origin {
        AskedBy::Reap(reap) => given_up(reap, error),
        AskedBy::Part(gathering, _) => dropped(gathering.take_origin()?, error),
        AskedBy::Query(reply) => Some(Told::reply(reply?, Err(Fault::stopped()))),
        AskedBy::Lock(..) | AskedBy::Ping => None,
    }
}

/// The error for the caller of a release that is not repeated.
pub(super) fn given_up(reap: Box<Reap>, error: &LockError) -> Option<Told> {
    Some(Told::release((reap.give_up()?, Err(error.clone()))))
}

/// How often the engine looks whether guards are left. Nothing is counted while there is no drain.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
