//! One caller that waits for a lock.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::error::{Fault, FaultClass};
use crate::store::Blocker;
use crate::{LockError, Wait};

/// One waiter.
#[derive(Debug)]
pub(crate) struct Waiter<W> {
    pub(crate) id: u64,
    pub(crate) handle: W,
    pub(crate) demand: Arc<Demand>,
    pub(crate) asked: Moment,
}

impl<W> Waiter<W> {
    pub(crate) fn can_wait(&self) -> bool {
        self.demand.terms.wait != Wait::None
    }

    /// When its wait ends. For a caller that does not wait, when its answer is due.
    pub(super) fn until(&self) -> Moment {
        match self.demand.terms.wait {
            Wait::Forever => Moment::NEVER,
            Wait::For(limit) => self.asked.after(limit),
            Wait::None => self.answer_by(),
        }
    }

    /// When it has to get an answer, whether or not the server has answered.
    pub(super) fn answer_by(&self) -> Moment {
        match self.demand.terms.wait {
            Wait::Forever => Moment::NEVER,
            Wait::For(limit) => self.asked.after(limit).after(self.demand.terms.timeout),
            Wait::None if planted!(NextLook) => self.asked.after(Duration::from_secs(9)),
            Wait::None => self.asked.after(self.demand.terms.timeout),
        }
    }

    /// When its time limit for an outage passes.
    pub(super) fn outage_end(&self, useful: Moment) -> Moment {
        self.asked.max(useful).after(self.demand.terms.outage)
    }
}

/// The error of a waiter when the lock is busy.
pub(super) fn busy<W>(waiter: &Waiter<W>, blocker: Option<&Blocker>, now: Moment) -> LockError {
    let holder = blocker.and_then(Blocker::holder).map(Box::new);
    let key = waiter.demand.key().to_string();
    LockError::Busy { key, waited: now.since(waiter.asked), holder }
}

/// The error of a waiter that has had no answer.
pub(super) fn unanswered<W>(waiter: &Waiter<W>) -> LockError {
    let fault = Fault::new(FaultClass::Late, "the server did not answer in time");
    LockError::backend(Some(waiter.demand.key()), &fault)
}
