//! `Locks::scope`: which `Locks` is found by code that was given none.
//!
//! Nothing is installed in this process and REDIS_URL names no server, so a test that leaves its scope
//! finds no `Locks` at all.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};

/// Fails with `Busy` when two calls find the same `Locks`.
#[redis_lock(key = "scoped", wait = "none")]
async fn only_once(hold: Duration) -> Result<(), LockError> {
    tokio::time::sleep(hold).await;
    Ok(())
}

#[redis_lock(key = "scoped", wait = "none")]
fn only_once_blocking(inner: impl FnOnce()) -> Result<(), LockError> {
    inner();
    Ok(())
}

fn namespace() -> String {
    match Locks::global() {
        Ok(locks) => format!("{locks:?}").split('"').nth(3).unwrap_or_default().to_owned(),
        Err(_) => "none".to_owned(),
    }
}

fn named(namespace: &str) -> Locks {
    Locks::builder().in_memory().namespace(namespace).open().unwrap()
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn h4_two_scopes_that_run_side_by_side_don_t_meet() {
    let hold = Duration::from_millis(50);
    let (one, other) = tokio::join!(
        Locks::in_memory().scope(only_once(hold)),
        Locks::in_memory().scope(only_once(hold)),
    );
    assert_eq!((one, other), (Ok(()), Ok(())));
    let locks = Locks::in_memory();
    let (one, other) = tokio::join!(locks.scope(only_once(hold)), locks.scope(only_once(hold)));
    assert!(one.is_ok() && other.unwrap_err().is_busy(), "those of one scope do");
}

#[test]
fn scopes_of_threads_and_tasks_nest() {
    let outer = named("outer");
    let seen = outer.blocking_scope(|| {
        let inner = named("inner").blocking_scope(namespace);
        let task = pollster::block_on(named("task").scope(async { namespace() }));
        [namespace(), inner, task, namespace()]
    });
    assert_eq!(seen, ["outer", "inner", "task", "outer"]);
    assert_eq!(namespace(), "none");
}

#[test]
fn a_scope_ends_with_each_poll_and_comes_back_with_the_next() {
    let mut polls = 0;
    let mut scoped = pin!(named("app").scope(poll_fn(|_| {
        polls += 1;
        assert_eq!(namespace(), "app");
        if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
    })));
    while poll_once(scoped.as_mut()).is_pending() {
        assert_eq!(namespace(), "none", "between two polls");
    }
    assert_eq!(namespace(), "none");
}

#[test]
fn a_panic_ends_the_scope() {
    let panics = || named("app").blocking_scope(|| panic!("in the body"));
    assert!(catch_unwind(panics).is_err());
    let mut scoped = Box::pin(named("app").scope(async { panic!("in the future") }));
    assert!(catch_unwind(AssertUnwindSafe(|| poll_once(scoped.as_mut()))).is_err());
    assert_eq!(namespace(), "none");
}

#[test]
fn what_a_dropped_future_owned_is_dropped_in_the_scope() {
    thread_local!(static SEEN: Cell<Option<String>> = const { Cell::new(None) });
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            SEEN.set(Some(namespace()));
        }
    }
    let last = Last;
    let mut scoped = Box::pin(named("app").scope(async move {
        let _last = last;
        std::future::pending::<()>().await;
    }));
    assert!(poll_once(scoped.as_mut()).is_pending());
    drop(scoped);
    assert_eq!(SEEN.take().as_deref(), Some("app"));
    assert_eq!(namespace(), "none");
}

#[test]
fn what_is_spawned_is_not_in_the_scope() {
    let locks = named("app");
    let thread = locks.blocking_scope(|| std::thread::spawn(namespace).join().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let task =
        runtime.block_on(locks.scope(async { tokio::spawn(async { namespace() }).await.unwrap() }));
    assert_eq!([thread, task], ["none", "none"]);
}

#[test]
fn scopes_work_in_every_executor() {
    let hold = Duration::ZERO;
    let lasting = || async { Locks::global()?.mutex("k").acquire().await?.release().await };
    smol::block_on(named("smol").scope(lasting())).unwrap();
    pollster::block_on(named("pollster").scope(lasting())).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let spawned = runtime.spawn(named("tokio").scope(only_once(hold)));
    runtime.block_on(spawned).unwrap().unwrap();
    let blocking = named("none").blocking_scope(|| only_once_blocking(|| ()));
    blocking.unwrap();
}

#[test]
fn the_locks_of_a_scope_may_be_its_last() {
    let value = Locks::in_memory().blocking_scope(|| only_once_blocking(|| ()).is_ok());
    assert!(value, "the only reference is dropped after the scope");
}
