//! The promise: the body never runs without the lock, and a value of its own means that the lock
//! was held throughout. In every executor, through nested calls, cancellation and panics.
#![deny(warnings)]

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use redis_locks::{Guard, LockError, LockState, Locks, redis_lock};

type R<T> = Result<T, LockError>;

fn locks() -> &'static Locks {
    static LOCKS: OnceLock<Locks> = OnceLock::new();
    LOCKS.get_or_init(|| {
        let locks = Locks::in_memory();
        locks.install().unwrap();
        locks
    })
}

fn is_locked(key: &str) -> bool {
    let request = locks().mutex(key);
    thread::spawn(|| request.blocking_try_acquire().unwrap().is_none()).join().unwrap()
}

fn until_free(key: &str) {
    let request = locks().mutex(key);
    thread::spawn(|| drop(request.blocking_acquire().unwrap())).join().unwrap();
}

/// An executor that consists of one thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

async fn tick() {
    let mut first = true;
    poll_fn(|context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

mod loss {
    use super::*;

    const SHORT: Duration = Duration::from_millis(150);

    #[redis_lock(key = "cancel:{n}", ttl = SHORT, renew = false)]
    async fn cancelled(n: u32, polls: Arc<AtomicU32>) -> R<u32> {
        poll_fn(|_| {
            polls.fetch_add(1, Ordering::SeqCst);
            Poll::<()>::Pending
        })
        .await;
        Ok(n)
    }

    #[test]
    fn a_lost_body_is_not_polled_again() {
        locks();
        let polls = Arc::new(AtomicU32::new(0));
        let error = block_on(cancelled(1, polls.clone())).unwrap_err();
        assert!(matches!(&error, LockError::Lost { key, .. } if key == "cancel:1"), "{error}");
        assert_eq!(polls.load(Ordering::SeqCst), 1, "woken by the loss, not polled after it");
        assert_eq!(Arc::strong_count(&polls), 1, "the body and its arguments are dropped");
    }

    /// Blocks the thread until the lease has ended: what a stopped process looks like from inside.
    fn stall(lock: &Guard) {
        while lock.state() != LockState::Lost {
            thread::park_timeout(lock.remaining());
        }
    }

    #[redis_lock(key = "stall:{n}", ttl = SHORT, renew = false, guard = lock)]
    async fn stalled(n: u32) -> R<u32> {
        stall(lock);
        tick().await;
        panic!("polled after the loss");
    }

    #[test]
    fn n3_a_stall_longer_than_the_lease_ends_at_the_next_await() {
        locks();
        assert!(block_on(stalled(1)).unwrap_err().is_lost());
    }

    #[redis_lock(key = "late:{n}", ttl = SHORT, renew = false, on_lost = finish)]
    async fn finished(n: u32, begun: &AtomicU32) -> R<u32> {
        begun.fetch_add(1, Ordering::SeqCst);
        Ok(n)
    }

    #[test]
    fn n3_a_body_that_may_finish_does_not_begin_after_its_lock_was_lost() {
        let first = locks().mutex("late:1").blocking_acquire().unwrap();
        let begun = AtomicU32::new(0);
        let mut call = pin!(finished(1, &begun));
        let mut context = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending(), "it waits");
        first.blocking_release().unwrap();
        // It is granted the lock, and its runtime stands still until its lease has ended.
        let next = locks().mutex("late:1").blocking_acquire().unwrap();
        let error = block_on(call).unwrap_err();
        assert!(error.is_lost() && next.is_held(), "{error}");
        assert_eq!(begun.load(Ordering::SeqCst), 0, "it ran beside another holder");
    }

    #[derive(Debug)]
    enum Failed {
        Lock(LockError),
        Own,
    }

    impl From<LockError> for Failed {
        fn from(error: LockError) -> Self {
            Self::Lock(error)
        }
    }

    #[redis_lock(key = "own:{ok}", ttl = SHORT, renew = false, guard = lock)]
    async fn ends_late(ok: bool) -> Result<u32, Failed> {
        stall(lock);
        if ok { Ok(1) } else { Err(Failed::Own) }
    }

    #[redis_lock(key = "own:s:{ok}", ttl = SHORT, renew = false, guard = lock)]
    fn ends_late_sync(ok: bool) -> Result<u32, Failed> {
        stall(lock);
        if ok { Ok(1) } else { Err(Failed::Own) }
    }

    #[test]
    fn n8_a_lost_lock_replaces_success_and_never_an_own_error() {
        locks();
        assert!(matches!(block_on(ends_late(true)), Err(Failed::Lock(error)) if error.is_lost()));
        assert!(matches!(block_on(ends_late(false)), Err(Failed::Own)));
        assert!(matches!(ends_late_sync(true), Err(Failed::Lock(error)) if error.is_lost()));
        assert!(matches!(ends_late_sync(false), Err(Failed::Own)));
    }

    #[redis_lock(key = "finish", ttl = SHORT, renew = false, on_lost = finish, guard = lock)]
    async fn finishes() -> R<LockState> {
        stall(lock);
        tick().await;
        Ok(lock.state())
    }

    #[redis_lock(key = "finish:s", ttl = SHORT, renew = false, on_lost = finish, guard = lock)]
    fn finishes_sync() -> R<LockState> {
        stall(lock);
        Ok(lock.state())
    }

    #[test]
    fn finish_runs_to_the_end_and_keeps_the_value() {
        locks();
        assert_eq!(block_on(finishes()).unwrap(), LockState::Lost);
        assert_eq!(finishes_sync().unwrap(), LockState::Lost);
    }

    #[redis_lock(key = "any", ttl = SHORT, renew = false, guard = lock, on_error = |error| if error.is_lost() { -1 } else { -2 })]
    async fn any_type() -> i32 {
        stall(lock);
        1
    }

    #[redis_lock(key = "any:r", ttl = SHORT, renew = false, guard = lock, on_error = |_| Ok("replaced"))]
    fn any_result(ok: bool) -> Result<&'static str, &'static str> {
        stall(lock);
        if ok { Ok("own") } else { Err("own") }
    }

    #[redis_lock(key = "any:o", ttl = SHORT, renew = false, guard = lock, on_error = |_| Ok("replaced"))]
    fn any_opaque_result(ok: bool) -> Result<impl fmt::Display, &'static str> {
        stall(lock);
        if ok { Ok("own") } else { Err("own") }
    }

    #[test]
    fn on_error_hears_of_the_loss_and_does_not_mask_an_own_error() {
        locks();
        assert_eq!(block_on(any_type()), -1);
        assert_eq!(any_result(true), Ok("replaced"));
        assert_eq!(any_result(false), Err("own"));
        assert_eq!(any_opaque_result(true).map(|it| it.to_string()), Ok("replaced".into()));
        assert_eq!(any_opaque_result(false).map(|it| it.to_string()), Err("own"));
    }

    #[test]
    fn run_keeps_the_same_promise() {
        let request = || locks().mutex("run").ttl(SHORT).renew(false);
        let error = block_on(request().run(async |_| pending::<()>().await)).unwrap_err();
        assert!(error.is_lost());
        assert!(block_on(request().run(async |lock| stall(lock))).unwrap_err().is_lost());
        assert!(request().blocking_run(stall).unwrap_err().is_lost());
        assert_eq!(block_on(request().run(async |_| 5)).unwrap(), 5);
        assert!(!is_locked("run"));
    }
}

mod cancellation {
    use super::*;

    #[redis_lock(key = "cancel_at", ttl = "30s", wait = "5s")]
    async fn several_awaits(log: Arc<AtomicU32>) -> R<()> {
        let _alive = log;
        tick().await;
        tick().await;
        Ok(())
    }

    /// N1: whatever the number of polls after which a call is dropped, the lock is free soon after,
    /// with a lease too long for expiry to hide a leak.
    #[test]
    fn n1_dropped_at_every_await_the_lock_is_released() {
        locks();
        let mut polls = 0;
        loop {
            let alive = Arc::new(AtomicU32::new(0));
            let mut done = false;
            {
                let mut call = pin!(several_awaits(alive.clone()));
                let mut woken = 0;
                block_on(poll_fn(|context| {
                    if woken == polls {
                        return Poll::Ready(());
                    }
                    woken += 1;
                    done = call.as_mut().poll(context).is_ready();
                    if done { Poll::Ready(()) } else { Poll::Pending }
                }));
            }
            assert_eq!(Arc::strong_count(&alive), 1, "after {polls} polls");
            until_free("cancel_at");
            if done {
                break;
            }
            polls += 1;
        }
        assert!(polls >= 3, "{polls} polls saw every await");
    }

    #[redis_lock(key = "cancel_at:outer", reentrant)]
    async fn waits(key: &str) -> R<()> {
        inner(key).await
    }

    #[redis_lock(key = "cancel_at:{key}")]
    async fn inner(key: &str) -> R<()> {
        pending().await
    }

    #[test]
    fn dropped_while_nested_calls_wait_both_locks_are_released() {
        locks();
        let held = locks().mutex("cancel_at:busy").blocking_acquire().unwrap();
        for key in ["busy", "free"] {
            let mut call = pin!(waits(key));
            let mut context = Context::from_waker(Waker::noop());
            while !is_locked("cancel_at:outer") {
                assert!(call.as_mut().poll(&mut context).is_pending());
            }
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
        until_free("cancel_at:outer");
        until_free("cancel_at:free");
        drop(held);
        until_free("cancel_at:busy");
    }
}

mod nesting {
    use super::*;

    #[redis_lock(key = "nest:{key}")]
    async fn plain(key: &str) -> R<u32> {
        tick().await;
        Ok(1)
    }

    #[redis_lock(key = "nest:{key}")]
    fn plain_sync(key: &str) -> R<u32> {
        Ok(1)
    }

    #[redis_lock(key = "nest:{key}", reentrant, guard = lock)]
    async fn joins(key: &str) -> R<String> {
        tick().await;
        Ok(lock.token().to_string())
    }

    #[redis_lock(key = "nest:{key}", reentrant)]
    fn joins_sync(key: &str) -> R<u32> {
        joins_deeper(key)
    }

    #[redis_lock(key = "nest:{key}", reentrant)]
    fn joins_deeper(key: &str) -> R<u32> {
        Ok(2)
    }

    async fn through_functions(key: &str) -> R<u32> {
        tick().await;
        async { plain(key).await }.await
    }

    #[redis_lock(key = "nest:{key}", guard = lock)]
    async fn outer(key: &str) -> R<()> {
        let reentrant = |result: R<u32>| {
            assert!(
                matches!(&result, Err(LockError::Reentrant { key: k, .. }) if k == &format!("nest:{key}")),
                "{result:?}"
            );
        };
        reentrant(plain(key).await);
        reentrant(through_functions(key).await);
        reentrant(plain_sync(key));
        let (a, b) = tokio::join!(plain(key), through_functions(key));
        reentrant(a);
        reentrant(b);
        tokio::select! {
            result = plain(key) => reentrant(result),
            () = pending() => {}
        }
        reentrant(block_on(plain(key)));
        reentrant(locks().mutex(lock.key()).run(async |_| 1).await);
        assert_eq!(plain("other").await?, 1);
        // A call that joins shares the hold, and the end of that call does not release it.
        assert_eq!(joins(key).await?, lock.token().to_string());
        assert_eq!(joins_sync(key)?, 2);
        tick().await;
        assert!(lock.is_held() && is_locked(lock.key()));
        // Another task or thread holds nothing.
        let other = thread::spawn(|| locks().mutex("nest:tokio").no_wait().blocking_acquire());
        assert!(matches!(other.join().unwrap(), Err(LockError::Busy { .. }) | Ok(_)));
        Ok(())
    }

    #[test]
    fn n6_reentrant_at_once_in_every_executor() {
        locks();
        block_on(outer("threads")).unwrap();
        let multi = tokio::runtime::Runtime::new().unwrap();
        multi.block_on(async { tokio::spawn(outer("tokio")).await.unwrap() }).unwrap();
        let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
        single.block_on(outer("single")).unwrap();
    }

    #[test]
    fn elsewhere_the_same_key_is_another_lock() {
        locks();
        let there = Locks::in_memory();
        let sum = block_on(
            locks().mutex("nest:x").run(async |_| there.mutex("nest:x").run(async |_| 2).await),
        );
        assert_eq!(sum.unwrap().unwrap(), 2);
    }

    #[redis_lock(key = "nest:siblings")]
    async fn parent() -> R<()> {
        static INSIDE: AtomicU32 = AtomicU32::new(0);

        #[redis_lock(key = "nest:siblings", reentrant)]
        async fn child() -> R<u32> {
            assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "siblings exclude each other");
            tick().await;
            tick().await;
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            Ok(1)
        }

        #[redis_lock(key = "nest:siblings", reentrant, wait = "none")]
        async fn impatient() -> R<u32> {
            Ok(1)
        }

        let (a, b, c) = tokio::join!(child(), child(), child());
        assert_eq!(a? + b? + c?, 3);
        let (a, busy) = tokio::join!(child(), impatient());
        assert_eq!(a?, 1);
        assert!(
            matches!(&busy, Err(LockError::Busy { key, .. }) if key == "nest:siblings"),
            "{busy:?}"
        );
        Ok(())
    }

    #[test]
    fn siblings_that_join_exclude_each_other() {
        locks();
        block_on(parent()).unwrap();
        assert!(!is_locked("nest:siblings"));
    }

    #[redis_lock(key = "nest:panic")]
    async fn panics() -> R<()> {
        tick().await;
        panic!("boom")
    }

    #[redis_lock(key = "nest:panic")]
    fn panics_sync() -> R<()> {
        panic!("boom")
    }

    #[test]
    fn a_panic_leaves_no_trace_on_the_thread() {
        locks();
        for _ in 0..2 {
            assert!(std::panic::catch_unwind(|| block_on(panics())).is_err());
            assert!(std::panic::catch_unwind(panics_sync).is_err());
        }
        until_free("nest:panic");
        assert_eq!(block_on(locks().mutex("nest:panic").run(async |_| 1)).unwrap(), 1);
    }

    #[test]
    fn a_body_that_moves_between_threads_takes_its_record_along() {
        locks();
        let mut call = Box::pin(outer("moves"));
        let mut poll_elsewhere = || {
            thread::scope(|scope| {
                let poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                scope.spawn(poll).join().unwrap()
            })
        };
        while poll_elsewhere().is_pending() {}
        let free = block_on(locks().mutex("nest:moves").try_acquire());
        assert!(free.unwrap().is_some(), "this thread holds nothing");
    }

    #[redis_lock(key = "nest:fence", fence = token)]
    async fn fenced() -> R<()> {
        #[redis_lock(key = "nest:fence", fence = token, reentrant)]
        async fn shares() -> R<u64> {
            Ok(token)
        }
        assert_eq!(shares().await?, token);
        Ok(())
    }

    #[redis_lock(key = "nest:fence")]
    async fn unfenced() -> R<()> {
        #[redis_lock(key = "nest:fence", fence = token, reentrant)]
        async fn shares() -> R<u64> {
            Ok(token)
        }
        assert!(matches!(shares().await, Err(LockError::WrongHold { .. })));
        Ok(())
    }

    #[test]
    fn a_joined_call_shares_the_fence_and_fails_without_one() {
        locks();
        block_on(fenced()).unwrap();
        block_on(unfenced()).unwrap();
    }
}
