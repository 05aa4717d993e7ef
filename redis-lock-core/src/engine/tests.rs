use std::thread;
use std::time::Duration;

use testbed::{Server, eventually, holds_for};

use super::path::Reader;
use crate::{LockError, LockState, Locks};

const PATIENCE: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_millis(800);

#[test]
fn j8_an_engine_that_fails_ends_every_hold_and_starts_again() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let request = || locks.mutex("job").ttl(TTL).wait(PATIENCE);
    let guard = request().blocking_acquire().unwrap();
    let waiting = thread::spawn({
        let request = request();
        move || request.blocking_acquire()
    });
    thread::sleep(Duration::from_millis(100));
    locks.link().crash();

    eventually(PATIENCE, "the holder is told", || guard.state() == LockState::Lost);
    let outcome = waiting.join().unwrap();
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    let error = guard.ensure(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("engine failed"), "{error}");
    assert!(guard.blocking_release().is_err_and(|error| error.is_lost()));

    // The new engine renews and releases as the old one did.
    let guard = request().blocking_acquire().unwrap();
    holds_for(TTL * 3, "it is renewed", || guard.state() == LockState::Held);
    guard.blocking_verify().unwrap();
    guard.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_task_of_a_busy_runtime_reads_and_the_engine_when_it_has_ended() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let reader = |locks: &Locks| locks.link().core().only_path().traffic().reader();
    let pairs = |count: usize| {
        let locks = locks.clone();
        async move {
            for _ in 0..count {
                locks.mutex("warm").acquire().await.unwrap().release().await.unwrap();
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async { tokio::spawn(pairs(20)).await.unwrap() });
    assert_eq!(reader(&locks), Reader::Engine, "a few commands are not worth it");
    runtime.block_on(async { tokio::spawn(pairs(400)).await.unwrap() });
    assert_eq!(reader(&locks), Reader::Engine, "a runtime without I/O can't read");
    drop(runtime);
    let runtime = two_workers();
    runtime.block_on(async { tokio::spawn(pairs(400)).await.unwrap() });
    assert_eq!(reader(&locks), Reader::Task(runtime.handle().id()));
    drop(runtime);
    eventually(PATIENCE, "the engine reads again", || reader(&locks) == Reader::Engine);
    locks.mutex("after").blocking_acquire().unwrap().blocking_release().unwrap();
    server.assert_clean();
}

fn two_workers() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
