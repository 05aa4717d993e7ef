//! Crowds of waiters and of shared locks cost each of them the same.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use redis_locks::{Guard, LockError, Locks};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::support::*;

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, LockError>>>>;

/// Four times as many may take five times as long; the best of some runs, on a busy machine.
#[track_caller]
fn assert_linear(what: &str, few: usize, mut run: impl FnMut(usize) -> Duration) {
    let mut ratios = Vec::new();
    for _ in 0..6 {
        let (small, large) = (run(few), run(4 * few));
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        if ratio <= 5.0 {
            return;
        }
        ratios.push(format!("{small:.0?} to {large:.0?}: {ratio:.1}"));
    }
    panic!("{what}: {ratios:?}");
}

fn waiters(locks: &Locks, count: usize) -> Vec<Waiting> {
    let mut waiting = Vec::with_capacity(count);
    for _ in 0..count {
        let mut asking: Waiting = Box::pin(job(locks).wait_forever().acquire());
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        waiting.push(asking);
    }
    waiting
}

#[test]
fn waiters_that_are_dropped() {
    let locks = Locks::in_memory();
    let _guard = job(&locks).blocking_acquire().unwrap();
    assert_linear("dropping waiters", 10_000, |count| {
        let waiting = waiters(&locks, count);
        let start = Instant::now();
        drop(waiting);
        start.elapsed()
    });
}

#[test]
fn waiters_that_are_dropped_last_come_first() {
    let locks = Locks::in_memory();
    let _guard = job(&locks).blocking_acquire().unwrap();
    assert_linear("dropping waiters from the end", 10_000, |count| {
        let mut waiting = waiters(&locks, count);
        let start = Instant::now();
        while waiting.pop().is_some() {}
        start.elapsed()
    });
}

/// Tasks of a current-thread runtime that wait for the lock, which is held.
fn waiting_tasks(locks: &Locks, runtime: &Runtime, count: usize) -> JoinSet<()> {
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let request = job(locks).wait_forever();
            tasks.spawn(async move { drop(request.acquire().await.unwrap()) });
        }
        // Each of them runs until it waits.
        tokio::task::yield_now().await;
        tasks
    })
}

#[test]
fn tasks_of_one_thread_that_are_dropped() {
    let locks = Locks::in_memory();
    let runtime = Builder::new_current_thread().build().unwrap();
    let _guard = job(&locks).blocking_acquire().unwrap();
    assert_linear("dropping tasks that wait", 5_000, |count| {
        let tasks = waiting_tasks(&locks, &runtime, count);
        let start = Instant::now();
        runtime.block_on(async { { tasks }.shutdown().await });
        start.elapsed()
    });
}

#[test]
fn tasks_of_one_thread_that_are_served() {
    let locks = Locks::in_memory();
    let runtime = Builder::new_current_thread().build().unwrap();
    assert_linear("serving tasks that wait", 5_000, |count| {
        let guard = job(&locks).blocking_acquire().unwrap();
        let tasks = waiting_tasks(&locks, &runtime, count);
        let start = Instant::now();
        drop(guard);
        runtime.block_on(tasks.join_all());
        start.elapsed()
    });
}

#[test]
fn waiters_that_are_served() {
    let locks = Locks::in_memory();
    assert_linear("serving waiters", 10_000, |count| {
        let guard = job(&locks).blocking_acquire().unwrap();
        let waiting = waiters(&locks, count);
        let start = Instant::now();
        drop(guard);
        for waiting in waiting {
            drop(pollster::block_on(waiting).unwrap());
        }
        start.elapsed()
    });
}

#[test]
fn shared_locks_that_are_looked_at() {
    assert_linear("looking at shared locks", 1_000, |count| {
        let locks = Locks::in_memory();
        let readers: Vec<_> =
            (0..count).map(|_| locks.read(KEY).blocking_acquire().unwrap()).collect();
        let start = Instant::now();
        assert_eq!(locks.blocking_list("*").count(), 1);
        locks.blocking_status(KEY).unwrap();
        let took = start.elapsed();
        drop(readers);
        took
    });
}

#[test]
fn shared_locks_on_many_keys_that_are_listed() {
    assert_linear("listing shared locks", 2_000, |count| {
        let locks = Locks::in_memory();
        let take = |number| locks.read(format!("{KEY}{number}")).blocking_acquire().unwrap();
        let readers: Vec<_> = (0..count).map(take).collect();
        let start = Instant::now();
        assert_eq!(locks.blocking_list("*").count(), count);
        let took = start.elapsed();
        drop(readers);
        took
    });
}
