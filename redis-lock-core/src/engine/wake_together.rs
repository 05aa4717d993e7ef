//! Wakes many tasks without waking a worker of their runtime for each of them.
//!
//! When a task wakes another one, Tokio wakes an idle worker for it. That worker finds one task or
//! two, and sleeps again before the next one is woken: 32 answers cost four switches of threads. While
//! a worker looks for I/O, Tokio wakes no other; afterwards it wakes one for all that has become ready.
//! So the task that reads has tasks woken there.
//!
//! Other wakers are called one by one by the reading task: they may be the user's code, and the runtime
//! stands still for as long as one of them blocks there.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{self, RuntimeFlavor};

use super::notices::Notice;
use super::runtime_notices::STUCK;
use crate::domain::clock::Moment;

/// So few tasks are woken at once.
pub(super) const MIN_TOGETHER: usize = 4;

/// Where tasks wait longer on average, they are woken at once. A worker that has other tasks to run may
/// look for I/O only after 61 of them.
const MOST_DELAY: Duration = Duration::from_millis(1);

/// The tasks that are about to be woken.
#[derive(Debug, Default)]
pub(crate) struct WokenTasks(Mutex<WokenList>);

#[derive(Debug)]
struct WokenList {
    wakers: VecDeque<Waker>,
    /// Since when the first one waits, or somebody wakes them.
    since: Moment,
    /// How long they waited of late, on average: a worker that was preempted once tells little.
    delay: Duration,
}

impl Default for WokenList {
    fn default() -> Self {
        Self { wakers: VecDeque::new(), since: Moment::NEVER, delay: Duration::ZERO }
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
        listed.wakers.push_back(waker);
    }

    /// Wakes them now. To wake a task of a `LocalSet` is to call the waker of whoever polls that, which
    /// may be the user's code: a panic would end a worker, and those that are left must be found while
    /// one blocks.
    pub(super) fn wake_all(&self) {
        self.listed().since = Moment::now();
        while let Some(waker) = self.next() {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    fn next(&self) -> Option<Waker> {
        self.listed().wakers.pop_front()
    }

    /// Whether they should wait for the worker to look for I/O.
    pub(super) fn may_wait(&self) -> bool {
        let mut listed = self.listed();
        if listed.wakers.len() < MIN_TOGETHER {
            return false;
        }
        if listed.delay < MOST_DELAY {
            listed.since = Moment::now();
            return true;
        }
        // It is tried again now and then.
        listed.delay = listed.delay / 64 * 63;
        false
    }

    /// Notes how long they have waited, which ends now.
    pub(super) fn note_delay(&self, now: Moment) {
        let mut listed = self.listed();
        if !listed.wakers.is_empty() {
            let delay = now.since(listed.since);
            listed.delay = listed.delay / 8 * 7 + delay / 8;
        }
    }

    /// Makes notices of them when they have waited too long: their worker runs something that blocks.
    pub(super) fn hand_over_stuck(&self, now: Moment, notices: &mut VecDeque<Notice>) {
        if self.due() <= now {
            self.note_delay(now);
            self.hand_over(notices);
        }
    }

    /// Makes notices of all.
    pub(super) fn hand_over(&self, notices: &mut VecDeque<Notice>) {
        notices.extend(self.listed().wakers.drain(..).map(Notice::Wake));
    }

    /// When to look whether they have waited too long.
    pub(super) fn due(&self) -> Moment {
        let listed = self.listed();
        if listed.wakers.is_empty() { Moment::NEVER } else { listed.since.after(STUCK) }
    }
}

/// So that it can be left to the runtime when they are woken.
impl Wake for WokenTasks {
    fn wake(self: Arc<Self>) {
        self.note_delay(Moment::now());
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
    /// Whether any were added that nobody has woken since.
    has_added: Cell<bool>,
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
        let (waker, woken) = (Waker::from(Arc::clone(woken)), Arc::clone(woken));
        Some(Self { tasks, woken, waker, has_added: Cell::new(false) })
    }

    /// Whether a waker belongs to a task of Tokio.
    pub(super) fn is_of_task(&self, waker: &Waker) -> bool {
        ptr::eq(waker.vtable(), self.tasks)
    }

    pub(super) fn add(&self, waker: Waker) {
        self.woken.add(waker);
        self.has_added.set(true);
    }

    /// Has those that were added woken. Returns whether that happens later, when this worker looks for
    /// I/O next.
    pub(super) fn wake(&self) -> bool {
        if !self.has_added.take() {
            return false;
        }
        let may_wait = self.woken.may_wait();
        if may_wait {
            // It passes the waker on to the runtime when it is polled, and that is all it is for.
            let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&self.waker));
        } else {
            self.woken.wake_all();
        }
        may_wait
    }
}
