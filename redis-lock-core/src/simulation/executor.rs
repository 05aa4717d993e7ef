//! Polls the futures of callers, on one thread and in an order that the seed decides.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::clock;
use crate::engine::core::Core;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks that were woken, by their numbers.
type Ready = Arc<Mutex<Vec<usize>>>;

thread_local! {
    /// Who wants to be woken at what time.
    static SLEEPERS: RefCell<Vec<(u64, Waker)>> = const { RefCell::new(Vec::new()) };
}

/// All tasks of a history.
#[derive(Default)]
pub(super) struct Executor {
    tasks: Vec<(usize, Option<Task>)>,
    ready: Ready,
    cores: Vec<Weak<Core>>,
    locked: Arc<Mutex<bool>>,
}

struct SimulatedWaker {
    task: usize,
    ready: Ready,
    core: Option<Weak<Core>>,
    locked: Arc<Mutex<bool>>,
}

impl Wake for SimulatedWaker {
    fn wake(self: Arc<Self>) {
        // Here the user's code would run: none of the engine's locks may be held.
        if self.core.as_ref().and_then(Weak::upgrade).is_some_and(|core| core.holds_locks()) {
            *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
    }
}

impl Executor {
    /// Adds a task of this process.
    pub(super) fn spawn(&mut self, process: usize, task: impl Future<Output = ()> + 'static) {
        let number = self.tasks.len();
        self.tasks.push((process, Some(Box::pin(task))));
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Makes known whose locks must not be held when tasks of a process are woken.
    pub(super) fn watch(&mut self, core: &Arc<Core>) {
        self.cores.push(Arc::downgrade(core));
    }

    /// The tasks that were woken, with their processes, in the order of that.
    pub(super) fn woken(&self) -> Vec<usize> {
        let mut woken =
            std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner));
        let mut seen = Vec::new();
        woken.retain(|task| {
            !seen.contains(task) && {
                seen.push(*task);
                true
            }
        });
        woken
    }

    /// Wakes a task again, later.
    pub(super) fn put_back(&self, task: usize) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    pub(super) fn process_of(&self, task: usize) -> usize {
        self.tasks[task].0
    }

    pub(super) fn poll(&mut self, task: usize) {
        let process = self.tasks[task].0;
        let Some(mut future) = self.tasks[task].1.take() else { return };
        let waker = SimulatedWaker {
            task,
            ready: Arc::clone(&self.ready),
            core: self.cores.get(process).cloned(),
            locked: Arc::clone(&self.locked),
        };
        let waker = Waker::from(Arc::new(waker));
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks[task].1 = Some(future);
        }
    }

    /// Takes the tasks of a process away, to be dropped or forgotten.
    pub(super) fn remove(&mut self, process: usize) -> Vec<Task> {
        let of_it = self.tasks.iter_mut().filter(|(owner, _)| *owner == process);
        of_it.filter_map(|(_, task)| task.take()).collect()
    }

    pub(super) fn is_done(&self) -> bool {
        self.tasks.iter().all(|(_, task)| task.is_none())
    }

    /// Whether a task was ever woken while one of the engine's locks was held.
    pub(super) fn woke_under_lock(&self) -> bool {
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sleepers that were added since the last call.
pub(super) fn sleepers() -> Vec<(u64, Waker)> {
    SLEEPERS.take()
}

/// Waits until this much time has passed.
pub(super) fn sleep(nanos: u64) -> impl Future<Output = ()> {
    let until = clock::now() + nanos;
    std::future::poll_fn(move |context| {
        if clock::now() >= until {
            return Poll::Ready(());
        }
        SLEEPERS.with_borrow_mut(|sleepers| sleepers.push((until, context.waker().clone())));
        Poll::Pending
    })
}

/// Polls a future so many times, or until so much time has passed, and drops it then.
pub(super) async fn cut_short<T>(
    future: impl Future<Output = T>,
    polls: Option<u32>,
    nanos: Option<u64>,
) -> Option<T> {
    let mut future = Box::pin(future);
    let mut sleeping = nanos.map(|nanos| Box::pin(sleep(nanos)));
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == Some(0) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        if let Some(polls) = &mut left {
            *polls -= 1;
            if *polls == 0 {
                return Poll::Ready(None);
            }
        }
        if let Some(sleeping) = &mut sleeping
            && sleeping.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}
