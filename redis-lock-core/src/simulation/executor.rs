//! Polls the futures of callers, on one thread and in an order that the seed decides.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::clock;
use crate::domain::env::simulated;
use crate::engine::core::Core;

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks that were woken, by their numbers.
type Ready = Arc<Mutex<Vec<usize>>>;

thread_local! {
    /// Who wants to be woken at what time.
    static SLEEPERS: RefCell<Vec<(u64, Waker)>> = const { RefCell::new(Vec::new()) };
}

/// Where a task lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// Always on a plain thread.
    Thread,
    /// On a runtime of the process, of which each has a number, or on a plain thread.
    Caller,
    /// On this runtime, and it reads.
    Reader(u32),
}

struct SimulatedTask {
    process: usize,
    home: Home,
    /// `None` when it has ended.
    future: Option<Task>,
    polls: u64,
    /// It is not polled before this.
    held_until: u64,
}

/// All tasks of a history.
#[derive(Default)]
pub(super) struct Executor {
    tasks: Vec<SimulatedTask>,
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
    pub(super) fn spawn(
        &mut self,
        process: usize,
        home: Home,
        task: impl Future<Output = ()> + 'static,
    ) {
        let number = self.tasks.len();
        let future = Some(Box::pin(task) as Task);
        self.tasks.push(SimulatedTask { process, home, future, polls: 0, held_until: 0 });
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
        self.tasks[task].process
    }

    /// Where a task lives, and how often it was polled.
    pub(super) fn home_of(&self, task: usize) -> (Home, u64) {
        (self.tasks[task].home, self.tasks[task].polls)
    }

    /// Whether it is not to be polled yet.
    pub(super) fn is_held(&self, task: usize) -> bool {
        self.tasks[task].held_until > clock::now()
    }

    /// Whether it was not to be polled until now.
    pub(super) fn was_held(&mut self, task: usize) -> bool {
        std::mem::take(&mut self.tasks[task].held_until) > 0
    }

    pub(super) fn callers_of(&self, process: usize) -> impl Iterator<Item = usize> {
        let is_it =
            move |task: &SimulatedTask| task.process == process && task.home == Home::Caller;
        self.tasks.iter().enumerate().filter(move |(_, task)| is_it(task)).map(|(number, _)| number)
    }

    pub(super) fn hold(&mut self, task: usize, until: u64) {
        self.tasks[task].held_until = until;
    }

    /// Counts an attempt to poll, for what happens then by chance.
    pub(super) fn count_poll(&mut self, task: usize) {
        self.tasks[task].polls += 1;
    }

    /// Takes the tasks away that live on a runtime.
    pub(super) fn take(&mut self, lives_there: impl Fn(usize, Home, usize) -> bool) -> Vec<Task> {
        let of_it = self.tasks.iter_mut().enumerate();
        let of_it = of_it.filter(|(number, task)| lives_there(task.process, task.home, *number));
        of_it.filter_map(|(_, task)| task.future.take()).collect()
    }

    /// Whether a task that reads has not ended, of a process that this says so of.
    pub(super) fn has_reader(&self, of: impl Fn(usize) -> bool) -> bool {
        let reads = |task: &SimulatedTask| matches!(task.home, Home::Reader(_));
        self.tasks.iter().any(|task| task.future.is_some() && reads(task) && of(task.process))
    }

    /// Polls a task on this runtime, or on a plain thread.
    pub(super) fn poll(&mut self, task: usize, runtime: Option<u32>) {
        let process = self.tasks[task].process;
        let Some(mut future) = self.tasks[task].future.take() else { return };
        let waker = SimulatedWaker {
            task,
            ready: Arc::clone(&self.ready),
            core: self.cores.get(process).cloned(),
            locked: Arc::clone(&self.locked),
        };
        let waker = Waker::from(Arc::new(waker));
        simulated::set_runtime(runtime);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        simulated::set_runtime(None);
        if polled.is_pending() {
            self.tasks[task].future = Some(future);
        }
    }

    /// Takes the tasks of a process away, to be dropped or forgotten.
    pub(super) fn remove(&mut self, process: usize) -> Vec<Task> {
        self.take(|owner, _, _| owner == process)
    }

    /// Whether all callers have ended.
    pub(super) fn is_done(&self) -> bool {
        let reads = |task: &SimulatedTask| matches!(task.home, Home::Reader(_));
        self.tasks.iter().all(|task| task.future.is_none() || reads(task))
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
