//! Drains a manager: no new locks, and an end when the guards are gone or the time is up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Link;
use super::core::{Core, Work};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::kind::Kind;
use crate::domain::names::Names;
use crate::lock::Machine;
use crate::{Drained, LockError, LossReason};

/// How often the engine looks whether guards are left. Nothing is counted while there is no drain.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

impl Link {
    /// Refuses new locks, and shuts down when the last guard is gone, or after `limit`. The engine does
    /// that, also when the future is dropped.
    pub(crate) async fn drain(&self, limit: Duration) -> Drained {
        let core = self.core();
        if core.is_forked() {
            return Drained { cut_off: 0 };
        }
        if core.drain.set(Moment::now().after(limit)).is_ok() {
            self.start();
            core.act(|work| {
                core.step_all(work, |machine, env, out| {
                    machine.refuse_all(&LockError::Shutdown, env, out);
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

impl Core {
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

    /// Ends every hold and every wait for a shutdown, once. Returns whether this was it.
    pub(super) fn close(&self, work: &mut Work) -> bool {
        let is_first = !self.closed.swap(true, Ordering::AcqRel);
        if is_first {
            let _let_end = super::shutdown::LetEnd(self);
            let drained = Drained { cut_off: self.table.count(Machine::is_held) };
            self.close_all(&LockError::Shutdown, &LossReason::Shutdown, work);
            let _ = self.drained.set(drained);
            self.tell_stage();
            self.leave(&mut work.notices);
            // It does not wait for those that are only repeated, so they are sent now.
            self.put_reaps(|reaper| reaper.take_due(Moment::NEVER), work);
            self.send(work);
        }
        is_first
    }

    /// Whether too many calls wait for one of the other keys of a lock of several.
    pub(super) fn crowded_elsewhere(&self, demand: &Demand) -> Option<LockError> {
        let (Kind::All { .. }, Some(most)) = (demand.kind, demand.terms.max_waiters) else {
            return None;
        };
        let waiting = |names: &Names| -> usize {
            Machine::waiting(self.table.shard(names.main()).of_key(names.main()))
        };
        let waiting = demand.names.all().skip(1).map(waiting).max().unwrap_or(0);
        let key = || demand.key().to_owned();
        (waiting >= most).then(|| LockError::Crowded { key: key(), waiting })
    }
}
