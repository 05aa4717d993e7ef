//! The same locks in every executor, and in none: the engine brings what it needs itself.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redis_locks::{LockError, Locks, redis_lock};
use testbed::{PATIENCE, Server, eventually};

#[redis_lock(key = "counter:{name}", ttl = "1s", via = locks)]
async fn annotated(locks: &Locks, name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

/// Takes, waits, loses patience, runs and releases: everything that needs waking or time.
async fn exercise(locks: Locks, other: Locks) {
    let guard = locks.mutex("k").acquire().await.unwrap();
    let busy = other.mutex("k").wait(Duration::from_millis(50)).acquire().await.unwrap_err();
    assert!(busy.is_busy(), "{busy}");
    let waiting = std::thread::spawn(move || other.mutex("k").blocking_acquire().unwrap());
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    let handed_over = waiting.join().unwrap();
    drop(handed_over);
    assert_eq!(locks.mutex("k").run(async |guard| guard.key().len()).await.unwrap(), 1);
    assert_eq!(annotated(&locks, "abc").await.unwrap(), 3);
}

fn in_executor(block_on: impl FnOnce(Pin<Box<dyn Future<Output = ()> + Send>>)) {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| Locks::open(server.url()).unwrap());
    block_on(Box::pin(exercise(locks, other)));
    eventually(PATIENCE, "all is given back", || server.keys().is_empty());
    server.assert_clean();
}

#[test]
fn in_smol() {
    in_executor(smol::block_on);
}

#[test]
fn in_tasks_of_smol() {
    in_executor(|work| smol::block_on(smol::spawn(work)));
}

#[test]
fn in_pollster() {
    in_executor(pollster::block_on);
}

#[test]
fn in_tokio_with_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    in_executor(|work| runtime.block_on(work));
}

#[test]
fn in_tokio_with_several_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    in_executor(|work| runtime.block_on(async { runtime.spawn(work).await.unwrap() }));
}

#[test]
fn in_a_tokio_runtime_without_drivers() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    in_executor(|work| runtime.block_on(work));
}

/// A runtime whose clock is paused jumps to the next timer when nothing but other threads is at work.
#[tokio::test(start_paused = true)]
async fn a_free_lock_in_memory_is_granted_before_a_paused_clock_jumps() {
    const MINUTE: Duration = Duration::from_secs(60);
    let locks = Locks::in_memory();
    for turn in 0..200 {
        let name = format!("{turn}");
        let called = tokio::time::timeout(MINUTE, annotated(&locks, &name)).await;
        assert!(matches!(called, Ok(Ok(_))), "{called:?}");
        let taken = tokio::time::timeout(MINUTE, locks.mutex("k").fenced().acquire()).await;
        let given_back = tokio::time::timeout(MINUTE, taken.unwrap().unwrap().release()).await;
        assert!(matches!(given_back, Ok(Ok(()))), "{given_back:?}");
        let reads = locks.read("few").run(async |_| ());
        tokio::time::timeout(MINUTE, reads).await.unwrap().unwrap();
    }
}
