//! Giving a hold back, which hands the lock to the next caller of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::core::{Core, Work};
use super::lock_id::LockId;
use super::notices::Notice;
use super::resident::Handle;
use crate::lock::{Effects, Env, Later, Machine};

impl Core {
    /// Steps the machine of a hold that its caller gives back.
    ///
    /// If another caller is handed the lock, and nothing else follows, it gets it at once and not by a
    /// notice, and is woken when everything has been sent. That is all that most locks need of which
    /// many tasks of a process want one.
    pub(crate) fn give_back(
        &self,
        id: &LockId,
        work: &mut Work,
        change: impl FnOnce(&mut Machine<Handle>, &Env<'_>, &mut Effects<Handle>),
    ) {
        self.step_in(id, false, work, change);
        let Work { effects, notices, next_holder, used_handles, .. } = work;
        if effects.later.len() != 1 {
            return self.note(id, work);
        }
        match effects.later.pop() {
            Some(Later::Grant(handle, hold)) => match handle.put_and_keep(Ok(hold), used_handles) {
                Ok(waker) => *next_holder = waker,
                Err(Ok(hold)) => notices.push_back(Notice::Unclaimed(id.clone(), hold)),
                Err(Err(_)) => {}
            },
            other => notices.extend(other.map(|later| Notice::of(id, later))),
        }
    }

    /// Wakes the caller that was handed the lock. Its waker is the user's code.
    pub(super) fn wake_next_holder(&self, work: &mut Work) {
        if let Some(waker) = work.next_holder.take() {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread;
    use std::time::Duration;

    use testbed::eventually;

    use super::*;
    use crate::domain::clock::Moment;
    use crate::domain::env::simulated;
    use crate::domain::once::once;
    use crate::engine::tests::Still;
    use crate::lock::Waiter;
    use crate::{Guard, LockError, Locks};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// The waker of somebody's own executor.
    struct OwnWaker<F>(AtomicUsize, F);

    impl<F: Fn() + Send + Sync + 'static> OwnWaker<F> {
        fn new(when_called: F) -> Arc<Self> {
            Arc::new(Self(AtomicUsize::new(0), when_called))
        }
    }

    impl<F: Fn() + Send + Sync + 'static> Wake for OwnWaker<F> {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            (self.1)();
        }
    }

    fn held(locks: &Locks) -> Guard {
        locks.mutex("k").blocking_acquire().unwrap()
    }

    /// Whether somebody else can step the machine of the lock.
    fn can_be_stepped(locks: &Locks) -> bool {
        let (says, said) = mpsc::channel();
        let locks = locks.clone();
        thread::spawn(move || says.send(locks.link().views("lock:k").len()));
        said.recv_timeout(PATIENCE).is_ok()
    }

    #[test]
    fn the_waker_of_the_next_caller_runs_while_nothing_is_locked() {
        let locks = Locks::in_memory();
        let guard = held(&locks);
        let (says, said) = mpsc::channel();
        let other = locks.clone();
        let own = OwnWaker::new(move || says.send(can_be_stepped(&other)).unwrap());
        let waker = Waker::from(Arc::clone(&own));
        let mut next = pin!(locks.mutex("k").acquire());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        guard.blocking_release().unwrap();
        assert_eq!(said.try_recv(), Ok(true), "it was called, before the release returned");
        assert_eq!(own.0.load(Ordering::SeqCst), 1);
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn a_waker_that_panics_keeps_the_lock_from_nobody() {
        let locks = Locks::in_memory();
        let guard = held(&locks);
        let waker = Waker::from(OwnWaker::new(|| panic!("on purpose")));
        let mut next = Box::pin(locks.mutex("k").acquire());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        guard.blocking_release().unwrap();
        let Poll::Ready(next) = next.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("it has the lock");
        };
        next.unwrap().blocking_release().unwrap();
        held(&locks).blocking_release().unwrap();
    }

    #[test]
    fn what_is_handed_to_a_caller_that_is_gone_is_released() {
        let locks = Locks::in_memory();
        let guard = held(&locks);
        let core = locks.link().core();
        let demand = Arc::clone(&guard.hold().demand);
        let (handle, mut awaited) = once();
        core.act(|work| {
            core.begin(&LockId::of(&demand, || 0), work, |machine, env, out| {
                let id = core.number();
                let waiter = |demand| Waiter { id, handle, demand, asked: env.now };
                assert!(machine.ask(Arc::clone(&guard.hold().demand), waiter, env, out).is_none());
            });
        });
        // As a caller that is dropped on another thread, before it has left the queue.
        assert!(awaited.end().is_none());
        guard.blocking_release().unwrap();
        eventually(PATIENCE, "the lock is free", || {
            locks.mutex("k").blocking_try_acquire().unwrap().is_some()
        });
    }
    #[test]
    fn whoever_is_refused_by_the_step_that_hands_the_lock_on_hears_of_it_as_well() {
        let locks = Locks::in_memory();
        held(&locks).blocking_release().unwrap();
        let process = crate::domain::env::process();
        let later = Moment::now().after(Duration::from_secs(3_600));
        // On this thread it is an hour later, so the engine's own timers come too late.
        let _still = Still::begin();
        simulated::set_now(later.as_nanos());
        simulated::set_process(process);
        let guard = held(&locks);
        let own = [(); 2].map(|()| OwnWaker::new(|| {}));
        let wakers = own.clone().map(Waker::from);
        let [mut short, mut long] = [Duration::from_millis(1), PATIENCE]
            .map(|wait| Box::pin(locks.mutex("k").wait(wait).acquire()));
        assert!(short.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
        assert!(long.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
        simulated::set_now(later.after(Duration::from_millis(5)).as_nanos());
        guard.blocking_release().unwrap();
        assert_eq!(own.map(|own| own.0.load(Ordering::SeqCst)), [1, 1]);
        let short = short.as_mut().poll(&mut Context::from_waker(&wakers[0]));
        assert!(matches!(short, Poll::Ready(Err(LockError::Busy { .. }))), "{short:?}");
        let long = long.as_mut().poll(&mut Context::from_waker(&wakers[1]));
        assert!(matches!(long, Poll::Ready(Ok(_))), "{long:?}");
    }
}
