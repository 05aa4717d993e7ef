//! Inner calls that outlive the body around them, and bodies that are dropped before their end.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis_locks::{Guard, LockError, LockState, Locks, redis_lock};

type Inner = Pin<Box<dyn Future<Output = Result<u32, LockError>> + Send>>;

fn poll_once(inner: &mut Inner) -> Poll<Result<u32, LockError>> {
    inner.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

async fn once_more() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// Begins, and goes on with the second poll after that.
#[redis_lock(key = "outer", reentrant, via = locks)]
async fn joins(locks: Locks, log: Arc<Mutex<Vec<&'static str>>>) -> Result<u32, LockError> {
    log.lock().unwrap().push("begun");
    once_more().await;
    log.lock().unwrap().push("gone on");
    Ok(7)
}

/// Polls the call until its body has begun, and hands it out.
#[redis_lock(key = "outer", via = locks)]
async fn lets_go(locks: &Locks, log: &Arc<Mutex<Vec<&'static str>>>) -> Result<Inner, LockError> {
    let mut inner: Inner = Box::pin(joins(locks.clone(), Arc::clone(log)));
    while log.lock().unwrap().is_empty() {
        assert!(poll_once(&mut inner).is_pending());
        tokio::task::yield_now().await;
    }
    Ok(inner)
}

#[track_caller]
fn assert_ended_with_the_outer(outcome: &Result<u32, LockError>) {
    let Err(LockError::Lost { key, reason, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(key, "outer");
    assert!(reason.to_string().contains("the guard that it joined was released"), "{reason}");
}

#[tokio::test]
async fn a_call_that_joined_does_not_run_on_when_the_outer_body_has_ended() {
    let (locks, log) = (Locks::in_memory(), Arc::default());
    let inner = lets_go(&locks, &log).await.unwrap();
    let other = locks.mutex("outer").try_acquire().await.unwrap().expect("it is free");
    assert_ended_with_the_outer(&inner.await);
    assert_eq!(*log.lock().unwrap(), ["begun"]);
    other.release().await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_outer_body_wakes_a_call_that_joined() {
    let (locks, has_begun) = (Locks::in_memory(), Arc::new(AtomicBool::new(false)));
    let outer = locks.mutex("outer").run(async |_| {
        let (request, begins) = (locks.mutex("outer").reentrant(), Arc::clone(&has_begun));
        let mut inner: Inner = Box::pin(async move {
            let body = async |_: &Guard| {
                begins.store(true, Ordering::SeqCst);
                std::future::pending().await
            };
            request.run(body).await
        });
        assert!(poll_once(&mut inner).is_pending());
        let waiting = tokio::spawn(inner);
        until(async || has_begun.load(Ordering::SeqCst)).await;
        [waiting]
    });
    let [waiting] = outer.await.unwrap();
    assert_ended_with_the_outer(&within(waiting).await.unwrap());
}

#[tokio::test]
async fn a_call_that_joined_one_that_has_ended_ends_although_the_lock_is_held() {
    let locks = Locks::in_memory();
    let joined = |locks: &Locks| locks.mutex("outer").reentrant();
    let outer = locks.mutex("outer").run(async |_| {
        let innermost = joined(&locks).run(async |_| {
            let locks = locks.clone();
            let mut innermost: Inner = Box::pin(async move {
                joined(&locks).run(async |_| std::future::pending().await).await
            });
            assert!(poll_once(&mut innermost).is_pending());
            [innermost]
        });
        let [innermost] = innermost.await.unwrap();
        let sibling = joined(&locks).acquire().await.unwrap();
        assert_ended_with_the_outer(&within(innermost).await);
        sibling.release().await
    });
    outer.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_guard_that_joined_one_that_has_ended_is_not_confirmed_by_the_server() {
    let locks = Locks::in_memory();
    let joined = |locks: &Locks| locks.mutex("outer").reentrant();
    let outer = locks.mutex("outer").run(async |_| {
        let middle = joined(&locks).run(async |_| joined(&locks).acquire().await.unwrap());
        let innermost: Guard = middle.await.unwrap();
        assert_ended_with_the_outer(&innermost.verify().await.map(|()| 7));
        let extended = innermost.extend(Duration::from_secs(30)).await;
        assert_ended_with_the_outer(&extended.map(|()| 7));
    });
    outer.await.unwrap();
}

#[tokio::test]
async fn a_call_that_waits_for_its_turn_does_not_begin_when_the_outer_body_has_ended() {
    let (locks, has_begun) = (Locks::in_memory(), Arc::new(AtomicBool::new(false)));
    let outer = locks.mutex("outer").run(async |_| {
        let sibling = locks.mutex("outer").reentrant().acquire().await.unwrap();
        let request = locks.mutex("outer").reentrant();
        let begins = Arc::clone(&has_begun);
        let body = async move |_: &Guard| begins.store(true, Ordering::SeqCst);
        let mut inner: Inner = Box::pin(async move { request.run(body).await.map(|()| 7) });
        assert!(poll_once(&mut inner).is_pending());
        (sibling, inner)
    });
    let (sibling, inner) = outer.await.unwrap();
    drop(sibling);
    assert_ended_with_the_outer(&within(inner).await);
    assert!(!has_begun.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_guard_that_joined_says_that_the_outer_one_was_released() {
    let locks = Locks::in_memory();
    let joined = locks.mutex("outer").run(async |_| {
        let guard = locks.mutex("outer").reentrant().acquire().await.unwrap();
        assert!(guard.is_held() && guard.ensure(Duration::from_secs(1)).is_ok());
        guard
    });
    let joined: Guard = joined.await.unwrap();
    assert_eq!((joined.state(), joined.remaining()), (LockState::Lost, Duration::ZERO));
    let said = |error: LockError| assert_ended_with_the_outer(&Err(error));
    said(joined.ensure(Duration::ZERO).unwrap_err());
    said(joined.verify().await.unwrap_err());
    said(joined.extend(Duration::from_secs(30)).await.unwrap_err());
    assert!(joined.lost().await.to_string().contains("released"));
    said(joined.release().await.unwrap_err());
}

#[redis_lock(key = "outer", wait = "none", via = locks)]
fn roll_back_alone(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "outer", wait = "none", reentrant, via = locks)]
fn roll_back(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

type Outcomes = Arc<Mutex<Vec<Result<(), LockError>>>>;

/// Calls both when it is dropped. Notes an outcome when it is made, which says that the body has begun.
struct RollsBack(Locks, Outcomes);

impl RollsBack {
    fn new(locks: Locks, outcomes: Outcomes) -> Self {
        outcomes.lock().unwrap().push(Ok(()));
        Self(locks, outcomes)
    }
}

impl Drop for RollsBack {
    fn drop(&mut self) {
        let outcomes = [roll_back(&self.0), roll_back_alone(&self.0)];
        self.1.lock().unwrap().extend(outcomes);
    }
}

#[redis_lock(key = "outer", via = locks)]
async fn never_ends(locks: Locks, outcomes: Outcomes) -> Result<u32, LockError> {
    let _rolls_back = RollsBack::new(locks, outcomes);
    std::future::pending().await
}

/// The same without the attribute.
async fn never_ends_in_run(locks: Locks, outcomes: Outcomes) -> Result<u32, LockError> {
    let body = locks.mutex("outer").run(async |_| {
        let _rolls_back = RollsBack::new(locks.clone(), outcomes);
        std::future::pending().await
    });
    body.await
}

async fn until(is_so: impl AsyncFn() -> bool) {
    let looks = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    within(looks).await;
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

#[track_caller]
fn assert_joined_and_refused(outcomes: &Outcomes) {
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    let [_, Ok(()), Err(LockError::Reentrant { other_task: false, .. })] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cancelled_body_drops_runs_under_its_lock() {
    let bodies: [fn(Locks, Outcomes) -> Inner; 2] = [
        |locks, outcomes| Box::pin(never_ends(locks, outcomes)),
        |locks, outcomes| Box::pin(never_ends_in_run(locks, outcomes)),
    ];
    for body in bodies {
        let (locks, outcomes) = (Locks::in_memory(), Outcomes::default());
        let task = tokio::spawn(body(locks.clone(), Arc::clone(&outcomes)));
        until(async || !outcomes.lock().unwrap().is_empty()).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_joined_and_refused(&outcomes);
        until(async || locks.status("outer").await.unwrap().holders.is_empty()).await;
    }
}

#[redis_lock(key = "outer", via = locks, on_error = |_| roll_back_alone(locks).map(|()| 1))]
async fn is_lost(locks: &Locks) -> Result<u32, LockError> {
    locks.force_release("outer", "a test").await?;
    std::future::pending().await
}

#[tokio::test]
async fn what_follows_a_lost_lock_does_not_run_under_it() {
    assert_eq!(is_lost(&Locks::in_memory()).await.unwrap(), 1, "the lock is free by then");
}
