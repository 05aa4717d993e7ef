//! Wakes one task that polls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Wakes the task that polls it. A ring that comes before the poll is not lost.
#[derive(Debug, Default)]
pub(crate) struct TaskBell {
    is_rung: AtomicBool,
    waker: AtomicWaker,
}

impl TaskBell {
    pub(crate) fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn poll_rung(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_rung.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if self.is_rung.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_is_heard_once_whether_it_comes_before_the_poll_or_after_it() {
        let (bell, woken) = (TaskBell::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        bell.ring();
        assert!(bell.poll_rung(&context).is_ready());
        assert!(bell.poll_rung(&context).is_pending());
        assert!(!woken.0.load(Ordering::Relaxed));
        bell.ring();
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(bell.poll_rung(&context).is_ready());
        assert!(bell.poll_rung(&context).is_pending());
    }
}
