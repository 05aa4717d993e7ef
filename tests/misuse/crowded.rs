//! `max_waiters`: a queue that is long enough already.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use redis_locks::{ConfigError, Guard, LockError, LockRequest, Locks};
use testbed::{PATIENCE, Proxy, eventually};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::arena::Arena;

/// Has a thousand calls ask while the lock is held. Returns how many were told that it is crowded.
async fn crowd(request: &LockRequest, most: usize) -> usize {
    let calls = (0..1_000).map(|_| request.clone().max_waiters(most).acquire());
    crowded(calls.collect(), most).await
}

/// Returns how many of a thousand calls are told that it is crowded.
async fn crowded(mut calls: JoinSet<Result<Guard, LockError>>, most: usize) -> usize {
    let mut crowded = 0;
    while crowded < 1_000 - most {
        let ended = timeout(PATIENCE, calls.join_next()).await.unwrap().unwrap().unwrap();
        let error = ended.unwrap_err();
        let LockError::Crowded { waiting, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*waiting, most);
        assert!(error.is_busy() && error.is_retryable() && error.key().is_some());
        crowded += 1;
    }
    assert_eq!(calls.len(), most);
    calls.shutdown().await;
    crowded
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_calls_wait_as_may_for_a_holder_here() {
    let locks = Locks::in_memory();
    let kinds: [fn(&Locks) -> LockRequest; 4] = [
        |locks| locks.mutex("k"),
        |locks| locks.write("k"),
        |locks| locks.permit("k", 1),
        |locks| locks.all(["k", "l"]),
    ];
    for request in kinds {
        let _held = request(&locks).acquire().await.unwrap();
        assert_eq!(crowd(&request(&locks), 10).await, 990);
    }
}

#[test]
fn as_many_calls_wait_as_may_for_a_holder_elsewhere() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for arena in Arena::each() {
        runtime.block_on(async {
            let held = arena.other.mutex("k").acquire().await.unwrap();
            // The first one waits at the server.
            let first = tokio::spawn(arena.one.mutex("k").acquire());
            while arena.one.status("k").await.unwrap().waiters.is_empty() {
                tokio::task::yield_now().await;
            }
            // Until its first question is answered it may get the lock at once, and does not count.
            let limited = || arena.one.mutex("k").max_waiters(1).acquire();
            let began = Instant::now();
            let crowded = loop {
                assert!(began.elapsed() < PATIENCE, "{}: the waiter counts", arena.name);
                if let Ok(ended) = timeout(Duration::from_millis(50), limited()).await {
                    break ended.unwrap_err();
                }
            };
            assert!(crowded.is_busy(), "{crowded:?}");
            assert!(arena.one.mutex("k").max_waiters(1).try_acquire().await.unwrap().is_none());
            first.abort();
            held.release().await.unwrap();
            arena.one.shutdown().await;
            arena.other.shutdown().await;
        });
        arena.assert_clean();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_for_other_keys_and_calls_that_gave_up_do_not_count() {
    let locks = Locks::builder().in_memory().max_waiters(1).open().unwrap();
    let _held = locks.all(["a", "b"]).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.mutex("b").acquire());
    while locks.status("b").await.unwrap().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    // Until its first question is answered it may get the lock at once, and does not count.
    let began = Instant::now();
    let both = loop {
        assert!(began.elapsed() < PATIENCE, "a waiter that was refused counts");
        let both = timeout(Duration::from_millis(50), locks.all(["a", "b"]).acquire()).await;
        if let Ok(both) = both {
            break both.unwrap_err();
        }
    };
    assert!(matches!(both, LockError::Crowded { waiting: 1, .. }), "{both:?}");
    waiting.abort();
    eventually(PATIENCE, "it has given up", || {
        locks.blocking_status("b").unwrap().waiters.is_empty()
    });
    let again = timeout(Duration::from_millis(50), locks.mutex("b").acquire()).await;
    assert!(again.is_err(), "it waits: {again:?}");
}

/// On one thread, the waiting call has its answer before the next call comes. On several, the server may have queued
/// it before this process knows.
#[tokio::test]
async fn a_call_for_several_keys_waits_for_each_of_them() {
    let locks = Locks::in_memory();
    let _held = (locks.mutex("a").acquire().await.unwrap(), locks.mutex("b").acquire().await);
    let waiting = tokio::spawn(locks.all(["a", "b"]).acquire());
    let queues = async {
        while locks.status("a").await.unwrap().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, queues).await.unwrap();
    let limited = |request: LockRequest| async move {
        let ended = timeout(Duration::from_millis(300), request.max_waiters(1).acquire()).await;
        ended.unwrap_or_else(|_| panic!("it waits")).unwrap_err()
    };
    for request in [locks.mutex("a"), locks.mutex("b"), locks.all(["b", "c"])] {
        let error = limited(request).await;
        assert!(matches!(error, LockError::Crowded { waiting: 1, .. }), "{error:?}");
    }
    waiting.abort();
}

#[test]
fn a_limit_of_zero_is_refused() {
    let locks = Locks::in_memory();
    let error = locks.mutex("k").max_waiters(0).blocking_acquire().unwrap_err();
    let LockError::InvalidConfig { cause, .. } = error else { panic!("{error:?}") };
    assert!(matches!(cause, ConfigError::Zero { option: "max_waiters", .. }), "{cause:?}");
    assert!(Locks::builder().in_memory().max_waiters(0).open().is_err());
}

/// The calls ask at the same time, so that none knows yet that the lock is busy.
#[test]
fn of_a_burst_as_many_calls_wait_as_may_for_a_holder_elsewhere() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = testbed::Server::start();
    let [one, other] = [(); 2].map(|()| Locks::open(server.url()).unwrap());
    let kinds: [fn(&Locks) -> LockRequest; 5] = [
        |locks| locks.read("k"),
        |locks| locks.permit("p", 1),
        |locks| locks.all(["a", "b"]),
        |locks| locks.mutex("m"),
        |locks| locks.mutex("m").fenced(),
    ];
    runtime.block_on(async {
        let _held = other.mutex("m").acquire().await.unwrap();
        let _written = other.write("k").acquire().await.unwrap();
        let _permit = other.permit("p", 1).acquire().await.unwrap();
        let _both = other.all(["a", "b"]).acquire().await.unwrap();
        for request in kinds {
            assert_eq!(crowd(&request(&one), 10).await, 990);
        }
        one.shutdown().await;
        other.shutdown().await;
    });
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_burst_whose_first_questions_fail_as_many_calls_wait_as_may() {
    let server = testbed::Server::start();
    let proxy = Proxy::to(server.port());
    let one = Locks::connect(proxy.url()).await.unwrap();
    let other = Locks::connect(server.url()).await.unwrap();
    let _permit = other.permit("p", 1).acquire().await.unwrap();
    let request = one.permit("p", 1).max_waiters(10);
    // No call has an answer when the connection ends.
    proxy.hole();
    let mut calls: Vec<_> = (0..1_000).map(|_| Box::pin(request.clone().acquire())).collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    proxy.pass();
    proxy.kill_all();
    assert_eq!(crowded(calls.into_iter().collect(), 10).await, 990);
    one.shutdown().await;
    other.shutdown().await;
    server.assert_clean();
}
