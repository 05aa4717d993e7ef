//! Wakes tasks that poll.

use std::task::{Context, Poll};

use crate::sync::{Arc, AtomicBool, AtomicWaker, Mutex, MutexGuard, Ordering, PoisonError, Weak};

/// Wakes the task that polls it. A wake-up that comes before the poll is not lost.
#[derive(Debug, Default)]
pub(crate) struct TaskWaker {
    is_woken: AtomicBool,
    waker: AtomicWaker,
}

impl TaskWaker {
    pub(crate) fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn poll_woken(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_woken.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if self.is_woken.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Wakes all who watch. While the role of the reader changes hands, two tasks may watch. With one waker
/// for both, the task that has lost the role would get the news of the other.
#[derive(Debug, Default)]
pub(crate) struct SharedNews(Mutex<Vec<Weak<TaskWaker>>>);

impl SharedNews {
    pub(crate) fn wake(&self) {
        self.watches().iter().filter_map(Weak::upgrade).for_each(|waker| waker.wake());
    }

    /// Watches until this is dropped.
    pub(crate) fn watch(&self) -> Arc<TaskWaker> {
        let waker = Arc::new(TaskWaker::default());
        // There may have been news before this was registered.
        waker.wake();
        let mut watches = self.watches();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&waker));
        waker
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Weak<TaskWaker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use testbed::WakeLog;

    use super::*;

    #[test]
    fn a_wake_up_is_seen_once_whether_it_comes_before_the_poll_or_after_it() {
        let (signal, wakes) = (TaskWaker::default(), WakeLog::new());
        let task = wakes.waker();
        let context = Context::from_waker(&task);
        signal.wake();
        assert!(signal.poll_woken(&context).is_ready());
        assert!(signal.poll_woken(&context).is_pending());
        assert_eq!(wakes.count(), 0);
        signal.wake();
        assert_eq!(wakes.count(), 1);
        assert!(signal.poll_woken(&context).is_ready());
        assert!(signal.poll_woken(&context).is_pending());
    }
}
