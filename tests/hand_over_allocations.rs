//! How many allocations a lock costs that goes from task to task of one process: none.
//!
//! A program of its own, because the counting allocator is that of the whole program.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use redis_locks::{LockError, Locks};
use testbed::Server;
use tokio::runtime::{Builder, Runtime};

const TASKS: usize = 16;

/// So many locks are taken before anything is counted: tables grow meanwhile, and each thread comes by
/// the memory that it uses again and again.
const WARM_UP: u64 = 20_000;

const COUNTED: u64 = 100_000;

/// What a lock may allocate on average. Now and then the turn of the process ends, and the server is
/// asked again; a thread is interrupted between waking the next task and letting go of what both had;
/// or a table grows. An allocation for each lock would be 1.0.
const TOLERANCE: f64 = 0.05;

/// What it allocates beside that where the program may have a recorder of metrics, who hears of each lock:
/// the report of the acquisition, the span of the hold, and the hold, which ends with its span.
const REPORTS: f64 = if cfg!(feature = "metrics") { 3.0 } else { 0.0 };

/// What the tasks have done.
#[derive(Default)]
struct Tally {
    locks: AtomicU64,
    allocations: AtomicU64,
    is_over: AtomicBool,
}

/// Counts what a task allocates, on whatever thread it is polled. What its runtime allocates between the
/// polls is not counted.
struct Counted<F> {
    task: Pin<Box<F>>,
    tally: Arc<Tally>,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut polled = Poll::Pending;
        let info = measure(|| polled = self.task.as_mut().poll(context));
        self.tally.allocations.fetch_add(info.count_total, Ordering::Relaxed);
        polled
    }
}

/// How a task gives the lock back.
#[derive(Clone, Copy, Debug)]
enum Release {
    Awaited,
    Dropped,
}

async fn take_turns(locks: Locks, release: Release, tally: Arc<Tally>) -> Result<(), LockError> {
    while !tally.is_over.load(Ordering::Relaxed) {
        let guard = locks.mutex("a key that many tasks want").acquire().await?;
        match release {
            Release::Awaited => guard.release().await?,
            Release::Dropped => drop(guard),
        }
        tally.locks.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits until the tasks have taken so many locks more. Returns how many locks and allocations there
/// have been by then.
async fn after(tally: &Tally, more: u64) -> (u64, u64) {
    let end = tally.locks.load(Ordering::Relaxed) + more;
    let begun = Instant::now();
    while tally.locks.load(Ordering::Relaxed) < end {
        assert!(begun.elapsed() < Duration::from_secs(60), "the tasks go on taking the lock");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (tally.locks.load(Ordering::Relaxed), tally.allocations.load(Ordering::Relaxed))
}

fn workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// How many allocations a lock costs while the tasks of one process pass it on.
fn allocations_of_a_lock(locks: &Locks, release: Release) -> f64 {
    let tally = Arc::new(Tally::default());
    workers().block_on(async {
        let tasks = [(); TASKS].map(|()| {
            let task = Box::pin(take_turns(locks.clone(), release, Arc::clone(&tally)));
            tokio::spawn(Counted { task, tally: Arc::clone(&tally) })
        });
        let (first, before) = after(&tally, WARM_UP).await;
        let (last, allocations) = after(&tally, COUNTED).await;
        tally.is_over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        (allocations - before) as f64 / (last - first) as f64
    })
}

fn assert_that_none_is_needed(locks: &Locks) {
    for release in [Release::Awaited, Release::Dropped] {
        let allocations = allocations_of_a_lock(locks, release);
        println!("{allocations:.4} allocations for a lock, release {release:?}");
        assert!(
            allocations <= REPORTS + TOLERANCE,
            "a lock that is passed on in the process costs {allocations:.2} allocations, with \
             the release {release:?}; at most {:.2} are allowed",
            REPORTS + TOLERANCE
        );
    }
}

#[test]
fn a_lock_that_is_passed_on_in_memory_allocates_nothing() {
    assert_that_none_is_needed(&Locks::in_memory());
}

#[test]
fn a_lock_of_a_server_that_is_passed_on_in_the_process_allocates_nothing() {
    let server = Server::start();
    assert_that_none_is_needed(&Locks::open(server.url()).unwrap());
    server.assert_clean();
}
