//! Wakes tasks that poll.

use std::task::{Context, Poll};

use crate::sync::{AtomicBool, AtomicWaker, Ordering};

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
