//! How an engine is drained, shut down, dropped, or started again after it failed.

use std::sync::Arc;
use std::time::Duration;

use super::Link;
use super::core::{Core, Notice, Work};
use super::lifecycle::LifeStage;
use super::path::{AskedBy, QueueEntry, ReadyReply, Told, Traffic};
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
        core.life.waiting.until(|| core.life.has_ended().then_some(())).await;
    }

    /// Refuses new locks, and shuts down when the last guard is gone, or after `limit`. The engine does
    /// that even if the future is dropped.
    pub(crate) async fn drain(&self, limit: Duration) -> Drained {
        let core = self.core();
        if core.is_forked() {
            return Drained { cut_off: 0 };
        }
        let until = Moment::now().after(limit);
        if core
            .life
            .advance(|stage| (stage == LifeStage::Open).then_some(LifeStage::Draining(until)))
        {
            self.start();
            core.act(|work| {
                core.step_where(&|_| true, work, |machine, env| {
                    machine.refuse_all(&LockError::Shutdown, env);
                });
                core.leave(&mut work.notices);
            });
            core.tell_stage();
        }
        let drained = core.life.waiting.until(|| core.life.drained.get().copied()).await;
        self.shutdown().await;
        drained
    }

    /// Waits until a drain or a shutdown begins.
    pub(crate) async fn draining(&self) {
        let core = self.core();
        core.life.waiting.until(|| (core.is_draining() || core.is_closed()).then_some(())).await;
    }
}

/// Lets the engine end. This happens on drop, after all releases were queued, and also when a subscriber
/// panics.
struct LetEnd<'a>(&'a Core);

impl Drop for LetEnd<'_> {
    fn drop(&mut self) {
        let end = Moment::now().after(PATIENCE);
        self.0.life.advance(|stage| {
            (stage == LifeStage::Closing(None)).then_some(LifeStage::Closing(Some(end)))
        });
        self.0.waker.wake();
    }
}

impl Core {
    /// Whether it accepts no new work in this process.
    pub(super) fn is_shut(&self) -> bool {
        self.life.is_at(LifeStage::CLOSING)
    }

    /// Whether new locks are refused.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.life.is_at(LifeStage::DRAINING)
    }

    /// Whether the engine has nothing left to do and no requests can come.
    pub(crate) fn is_done(&self, now: Moment) -> bool {
        // What is in hand may go to the reaper, and from there to a queue.
        let is_answered = || self.pending.is_empty() && !self.any_place(Traffic::is_left);
        match self.life.stage() {
            LifeStage::Open | LifeStage::Draining(_) | LifeStage::Closing(None) => false,
            LifeStage::Closing(Some(end)) => now >= end || is_answered() || planted!(HastyShutdown),
            LifeStage::Abandoned => {
                let is_left = |traffic: &Traffic| traffic.has_questions() || traffic.is_left();
                !self.any_place(is_left)
                    && self.reaper.lock().is_empty()
                    && !self.any_place(is_left)
            }
            LifeStage::Ended => true,
        }
    }

    /// Ends a drain when it is time to.
    pub(super) fn drain_if_due(&self, now: Moment, work: &mut Work) {
        let LifeStage::Draining(end) = self.life.stage() else { return };
        // What has lapsed with a margin may still be acted upon.
        let lasts = |machine: &Machine<_>| machine.is_held() || machine.has_lapsed();
        if now >= end || self.table.count(lasts) == 0 {
            self.close(work);
        }
    }

    /// Ends every hold and every wait for a shutdown, once.
    fn close(&self, work: &mut Work) {
        if !self.life.begin_closing() {
            return;
        }
        let _let_end = LetEnd(self);
        let drained = Drained { cut_off: self.table.count(Machine::is_held) };
        self.close_machines(&LockError::Shutdown, &LossReason::Shutdown, work);
        let _ = self.life.drained.set(drained);
        self.tell_stage();
        self.leave(&mut work.notices);
        // It does not wait for those that are only repeated, so they are sent now.
        self.put_reaps(|reaper| reaper.take_due(Moment::NEVER), work);
        self.send(work);
    }

    /// The last reference to the `Locks` was dropped: idle leases are released, then the engine
    /// ends.
    pub(super) fn abandon(&self) {
        self.act(|work| {
            self.close_machines(&LockError::Shutdown, &LossReason::Shutdown, work);
        });
        self.life.advance(|stage| (stage == LifeStage::Open).then_some(LifeStage::Abandoned));
        self.waker.wake();
    }

    /// Ends everything after the engine failed.
    pub(super) fn restart(&self) {
        #[cfg(test)]
        self.crash_if_planted();
        let what = "the lock engine failed and was restarted";
        let fault = Fault::new(FaultClass::Refused, what);
        let mut work = Work::default();
        let reason = LossReason::Removed { because: Some(what.into()) };
        self.fail(&LockError::backend(None, &fault), &reason, &mut work);
        self.notices.add(&mut work.notices);
        // The next engine may fail before it hands anything on.
        self.notices.hand_to_thread(self.notifier());
    }

    /// Ends the engine: everything in it, and whatever still comes. The notices about that are left
    /// in `work`.
    pub(crate) fn end(&self, work: &mut Work) {
        self.life.begin_closing();
        // Readers may have outcomes in hand that find their next place only after this.
        self.reaper.lock().end();
        if let Some(several) = self.places.as_several() {
            several.end();
        }
        self.close_machines(&LockError::Shutdown, &LossReason::Shutdown, work);
        self.drop_entries(Traffic::end, &LockError::Shutdown, work);
    }

    /// Reports that the engine has ended. The notices about that are left to be carried out.
    pub(super) fn on_ended(&self) {
        let _ = self.life.drained.set(Drained { cut_off: 0 });
        self.life.advance(|_| Some(LifeStage::Ended));
        if self.notices.are_stuck() {
            // There is no other thread left that could wake them.
            (0..self.life.waiting.count()).for_each(|_| self.life.waiting.wake_one());
        }
        self.tell_stage();
    }

    /// Tells those who wait for it that another stage has begun.
    fn tell_stage(&self) {
        self.wake_each(Arc::clone(&self.life.waiting), self.life.waiting.count());
    }

    /// Ends every hold and every wait, and queues the releases of their tokens.
    fn close_machines(&self, error: &LockError, reason: &LossReason, work: &mut Work) {
        self.step_where(&|_| true, work, |machine, env| machine.close(error, reason, env));
    }

    /// Ends every hold and every wait without sending anything. The notices about that are left in
    /// `work`.
    pub(crate) fn fail(&self, error: &LockError, reason: &LossReason, work: &mut Work) {
        self.close_machines(error, reason, work);
        self.drop_entries(Traffic::drain, error, work);
    }

    /// Drops all entries of all places, and the tokens that wait for another try.
    fn drop_entries(
        &self,
        take: impl Fn(&mut Traffic) -> (Vec<QueueEntry>, Vec<ReadyReply>),
        error: &LockError,
        work: &mut Work,
    ) {
        // Entries that were refused at once, because there is no connection, are settled already.
        let mut entries = std::mem::take(&mut work.settled);
        let paused = self.reaper.lock().drain().map(AskedBy::Reap);
        for place in self.places.all().iter() {
            let (mut drained, ready) = take(&mut place.path.traffic());
            entries.append(&mut drained);
            let stopped = |reply| Notice::Told(Told::ready(reply, Err(Fault::stopped())));
            work.notices.extend(ready.into_iter().map(stopped));
            place.path.wake_deposed();
        }
        let origins = entries.into_iter().map(|entry| entry.origin).chain(paused);
        let told = origins.filter_map(|origin| dropped(origin, error));
        work.notices.extend(told.map(Notice::Told));
    }

    fn any_place(&self, is: impl Fn(&Traffic) -> bool) -> bool {
        self.places.all().iter().any(|place| is(&place.path.traffic()))
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
