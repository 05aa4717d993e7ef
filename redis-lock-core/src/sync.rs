//! What threads wait for each other with, in the primitives that `tests/threads` tries.
//!
//! There these names mean the types of a scheduler, which tries many orders of the threads' steps.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use std::thread;

pub(crate) use futures_util::task::AtomicWaker;
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::yield_now;

#[cfg(not(test))]
pub(crate) use std::sync::MutexGuard as NonPoisonGuard;

#[cfg(test)]
pub(crate) use lock_order::NonPoisonGuard;

use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

/// A mutex that stays usable after a thread has panicked with it: each step leaves its content whole.
#[derive(Debug, Default)]
pub(crate) struct NonPoisonMutex<T>(Mutex<T>);

impl<T> NonPoisonMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> NonPoisonGuard<'_, T> {
        #[cfg(test)]
        let turn = lock_order::Turn::of::<T>();
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        let guard = NonPoisonGuard { guard, _turn: turn };
        guard
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.try_lock().is_err()
    }
}

/// Those who wait for the same news. Their wakers are the user's code and may block, so each is woken by
/// itself.
#[derive(Debug, Default)]
pub(crate) struct NewsWaiters {
    news: Notify,
    count: AtomicUsize,
}

impl NewsWaiters {
    /// Looks now, and each time when there is news, until there is a result.
    pub(crate) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        // What is there already needs no lock: a thread of a parent process may have had that at a fork.
        if let Some(result) = look() {
            return result;
        }
        let _counted = Counted::among(&self.count);
        loop {
            let mut news = pin!(self.news.notified());
            // It is in the line before it looks. So the news is seen, or it is counted and woken.
            news.as_mut().enable();
            if let Some(result) = look() {
                return result;
            }
            news.await;
        }
    }

    /// How many of them have to be woken by news of now.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Wakes the thread that has waited longest.
    pub(crate) fn wake_one(&self) {
        self.news.notify_one();
    }
}

/// Wakes one of them.
impl Wake for NewsWaiters {
    fn wake(self: Arc<Self>) {
        self.wake_one();
    }
}

/// One who waits, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn among(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// In which order a thread locks several of them. It is checked wherever a test of this crate locks one.
#[cfg(test)]
mod lock_order {
    use std::cell::RefCell;
    use std::ops::{Deref, DerefMut};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::MutexGuard;

    /// What these end with is locked in this order, and all else last. Of one sort, and of what comes last, a
    /// thread locks one at a time. So no two threads wait for each other.
    const ORDER: [&str; 3] = ["::Shard", "::Traffic", "::Gathered"];

    thread_local! {
        static LOCKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    /// Notes that this thread has locked something of this place in the order.
    #[derive(Debug)]
    pub(super) struct Turn(usize);

    impl Turn {
        pub(super) fn of<T>() -> Self {
            let name = std::any::type_name::<T>();
            let turn = ORDER.iter().position(|it| name.ends_with(it)).unwrap_or(ORDER.len());
            let _ = LOCKED.try_with(|locked| {
                let mut locked = locked.borrow_mut();
                assert!(locked.iter().all(|it| *it < turn), "{name} is locked behind {locked:?}");
                locked.push(turn);
            });
            Self(turn)
        }
    }

    impl Drop for Turn {
        fn drop(&mut self) {
            let _ = LOCKED.try_with(|locked| locked.borrow_mut().retain(|it| *it != self.0));
        }
    }

    #[derive(Debug)]
    pub(crate) struct NonPoisonGuard<'a, T> {
        pub(super) guard: MutexGuard<'a, T>,
        pub(super) _turn: Turn,
    }

    impl<T> Deref for NonPoisonGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for NonPoisonGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    #[test]
    fn what_is_locked_out_of_order_is_noticed() {
        struct Shard;
        struct Traffic;
        let (shard, traffic) =
            (super::NonPoisonMutex::new(Shard), super::NonPoisonMutex::new(Traffic));
        drop((shard.lock(), traffic.lock()));
        let _traffic = traffic.lock();
        let out_of_order = || drop(shard.lock());
        assert!(catch_unwind(AssertUnwindSafe(out_of_order)).is_err());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    /// In a forked child another thread of the parent may have had the lock of the line.
    #[test]
    fn news_that_are_there_are_read_without_the_line() {
        let waiters = NewsWaiters::default();
        let looking = waiters.until(|| {
            assert_eq!(waiters.count(), 0, "it is in the line already");
            Some(())
        });
        assert_eq!(pin!(looking).now_or_never(), Some(()));
    }
}
