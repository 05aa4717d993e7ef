//! Locks that every thread has for a short time only.
//!
//! A thread that sleeps until such a lock is free costs itself and the one that frees it a system call, and a
//! switch of threads that takes longer than the wait. When all processors are busy, it is mostly a thread
//! which does not run at present that has the lock, so whoever wants it lets others run first.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

/// How often others are let run before a thread sleeps. More gave no more with 8 threads on two processors.
const YIELDS: usize = 4;

/// Locks a mutex that nobody has while it waits for anything. A panic leaves nothing half done, so a
/// poisoned one is as good as any.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..YIELDS {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_that_want_it_at_once_have_it_one_after_the_other() {
        let (count, start) = (Mutex::new(0_u32), Barrier::new(8));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..1_000 {
                        let mut count = lock(&count);
                        let before = *count;
                        std::hint::spin_loop();
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock(&count), 8_000);
    }

    #[test]
    fn who_has_it_for_long_is_waited_for() {
        let mutex = Mutex::new(1);
        let has = lock(&mutex);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| *lock(&mutex));
            testbed::holds_for(Duration::from_millis(20), "it waits", || !waiting.is_finished());
            drop(has);
            assert_eq!(waiting.join().unwrap(), 1);
        });
    }

    #[test]
    fn one_that_was_left_by_a_panic_can_be_locked() {
        let mutex = Mutex::new(1);
        let panics = catch_unwind(AssertUnwindSafe(|| {
            let _has = lock(&mutex);
            panic!("on purpose");
        }));
        assert!(panics.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 1);
        let has = lock(&mutex);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| *lock(&mutex));
            testbed::holds_for(Duration::from_millis(20), "it waits", || !waiting.is_finished());
            drop(has);
            assert_eq!(waiting.join().unwrap(), 1);
        });
    }
}
