//! Wakes many tasks without waking a worker of their runtime for each of them.
//!
//! When a task wakes another one, Tokio wakes an idle worker for it. That worker finds one task or
//! two, and sleeps again before the next one is woken: 32 answers cost four switches of threads. While
//! a worker looks for I/O, Tokio wakes no other; afterwards it wakes one for all that has become ready.
//! So the task that reads has tasks woken there.
//!
//! Other wakers are called one by one by the reading task: they may be the user's code, and the runtime
//! stands still for as long as one of them blocks there.

use std::future::Future;
use std::mem;
use std::pin::pin;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, RawWakerVTable, Wake, Waker};

use tokio::runtime::{self, RuntimeFlavor};

use super::runtime_notices::STUCK;
use crate::domain::clock::Moment;

/// So few tasks are woken at once.
pub(super) const MIN_TOGETHER: usize = 4;

/// The tasks that are about to be woken.
#[derive(Debug, Default)]
pub(crate) struct WokenTasks(Mutex<WokenList>);

#[derive(Debug)]
struct WokenList {
    wakers: Vec<Waker>,
    /// Since when the first one waits.
    since: Moment,
}

impl Default for WokenList {
    fn default() -> Self {
        Self { wakers: Vec::new(), since: Moment::NEVER }
    }
}

impl WokenTasks {
    fn listed(&self) -> MutexGuard<'_, WokenList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, waker: Waker) {
        let mut listed = self.listed();
        if listed.wakers.is_empty() {
            listed.since = Moment::now();
        }
        listed.wakers.push(waker);
    }

    /// Wakes them now.
    pub(super) fn wake_all(&self) {
        let wakers = mem::take(&mut self.listed().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn are_many(&self) -> bool {
        self.listed().wakers.len() >= MIN_TOGETHER
    }

    /// Wakes them when they have waited too long: their worker runs something that blocks. Returns when
    /// to look again.
    pub(super) fn watch(&self, now: Moment) -> Moment {
        let since = {
            let listed = self.listed();
            if listed.wakers.is_empty() {
                return Moment::NEVER;
            }
            listed.since
        };
        let stuck = since.after(STUCK);
        if now < stuck {
            return stuck;
        }
        self.wake_all();
        Moment::NEVER
    }
}

/// So that it can be left to the runtime when they are woken.
impl Wake for WokenTasks {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// How a reading task wakes other tasks of Tokio.
#[derive(Debug)]
pub(super) struct WakeTogether {
    /// What tells the wakers of such tasks from others.
    tasks: &'static RawWakerVTable,
    woken: Arc<WokenTasks>,
    /// Wakes them when it is woken.
    waker: Waker,
}

impl WakeTogether {
    /// To be called by a task. `None` where its runtime has no other worker that could be woken.
    pub(super) async fn of_this_task(woken: &Arc<WokenTasks>) -> Option<Self> {
        let runtime = runtime::Handle::try_current().ok()?;
        let has_several = runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            && runtime.metrics().num_workers() > 1;
        if !has_several {
            return None;
        }
        let own = |context: &mut Context<'_>| Poll::Ready(context.waker().vtable());
        let tasks = std::future::poll_fn(own).await;
        Some(Self { tasks, waker: Waker::from(Arc::clone(woken)), woken: Arc::clone(woken) })
    }

    /// Whether a waker belongs to a task of Tokio.
    pub(super) fn is_of_task(&self, waker: &Waker) -> bool {
        ptr::eq(waker.vtable(), self.tasks)
    }

    /// Has those that were added woken. Returns whether that happens later, when this worker looks for
    /// I/O next.
    pub(super) fn wake(&self) -> bool {
        let are_many = self.woken.are_many();
        if are_many {
            // It passes the waker on to the runtime when it is polled, and that is all it is for.
            let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&self.waker));
        } else {
            self.woken.wake_all();
        }
        are_many
    }
}
