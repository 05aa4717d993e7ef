//! What threads wait for each other with, in the primitives that `tests/threads` tries.
//!
//! There these names stand for the types of a scheduler, which tries many orders of the threads' steps.

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

/// A mutex that is used on after a thread has panicked with it: what it guards is changed in steps that leave it
/// whole.
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

/// In which order a thread locks several of them. It is checked wherever a test of this crate locks one.
#[cfg(test)]
mod lock_order {
    use std::cell::RefCell;
    use std::ops::{Deref, DerefMut};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::MutexGuard;

    /// What these end with is locked in this order, and all else last. Of one sort, and of what comes last, a
    /// thread locks one at a time. So no two threads wait for each other.
    const ORDER: [&str; 5] =
        ["::Shard", "::Traffic", "::Gathered", "::KnownToken>", "::Readiness>)>"];

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
