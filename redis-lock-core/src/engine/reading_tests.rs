//! Tasks and threads that read, beside others and at the end.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use testbed::{Server, eventually};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::notices::Notice;
use super::path::Reader;
use super::tests::{blocking_pairs, pairs, reader, two_workers};
use crate::{LockError, LockState, Locks};

const PATIENCE: Duration = Duration::from_secs(10);

/// Warms up until a task of the runtime reads.
fn have_a_task_read(locks: &Locks, runtime: &Runtime) {
    let reads = Reader::Task(runtime.handle().id());
    eventually(PATIENCE, "a task reads", || {
        runtime.block_on(async { tokio::spawn(pairs(locks.clone(), 400)).await.unwrap() });
        reader(locks) == reads
    });
}

/// Warms up until threads read.
fn have_threads_read(locks: &Locks) {
    blocking_pairs(locks, 200);
    eventually(PATIENCE, "the thread reads", || {
        blocking_pairs(locks, 1);
        reader(locks) == Reader::Nobody
    });
}

fn assert_no_task(runtime: &Runtime) {
    let metrics = runtime.metrics();
    eventually(PATIENCE, "the reading task ends", || metrics.num_alive_tasks() == 0);
}

#[test]
fn a_reading_task_ends_with_the_engine() {
    let server = Server::start();
    let runtime = two_workers();
    for shuts_down in [true, false] {
        let locks = Locks::open(server.url()).unwrap();
        have_a_task_read(&locks, &runtime);
        if shuts_down {
            locks.blocking_shutdown();
        }
        drop(locks);
        assert_no_task(&runtime);
    }
    server.assert_clean();
}

#[test]
fn a_reading_task_ends_with_its_connection() {
    let server = Server::start();
    let limit = Duration::from_millis(500);
    let locks = Locks::builder().url(server.url()).command_timeout(limit).open().unwrap();
    let runtime = two_workers();
    have_a_task_read(&locks, &runtime);
    server.freeze();
    // Nothing ever comes at the socket that it watches.
    assert!(locks.mutex("frozen").wait(limit).blocking_acquire().is_err());
    assert_no_task(&runtime);
    server.thaw();
    have_a_task_read(&locks, &runtime);
    eventually(PATIENCE, "no lock is left", || !server.exists("lock:frozen"));
    server.assert_clean();
}

/// Notes the thread that wakes it.
#[derive(Default)]
struct WokenBy(OnceLock<ThreadId>);

impl Wake for WokenBy {
    fn wake(self: Arc<Self>) {
        let _ = self.0.set(thread::current().id());
    }
}

#[test]
fn a_thread_that_reads_carries_out_nothing_for_others() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let held = locks.mutex("held").blocking_acquire().unwrap();
    have_threads_read(&locks);
    for _ in 0..5 {
        blocking_pairs(&locks, 1);
        let by = Arc::new(WokenBy::default());
        let (reply, told) = oneshot::channel();
        let mut told = pin!(told);
        let waker = Arc::clone(&by).into();
        assert!(told.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let mut others = VecDeque::from([Notice::Ready(reply, Ok(()))]);
        locks.link().core().notices.add(&mut others);
        // Where somebody listens, two notices follow from the answer.
        held.blocking_extend(PATIENCE).unwrap();
        eventually(PATIENCE, "the other one is told", || by.0.get().is_some());
        assert_ne!(by.0.get(), Some(&thread::current().id()));
    }
    held.blocking_release().unwrap();
    server.assert_clean();
}

/// Takes and releases a lock again and again on a thread of its own, whatever the server says, until
/// it is told to stop or the lock can't be had any more.
fn keep_at_it(
    locks: &Locks,
    key: &'static str,
    stops: &Arc<AtomicBool>,
) -> JoinHandle<Result<(), LockError>> {
    let (locks, stops) = (locks.clone(), Arc::clone(stops));
    thread::spawn(move || {
        let pair = || locks.mutex(key).wait(PATIENCE).blocking_acquire()?.blocking_release();
        while !stops.load(Ordering::SeqCst) {
            match pair() {
                Ok(()) | Err(LockError::Backend { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}

#[test]
fn a_hold_that_is_ended_by_force_is_lost_at_once_whoever_reads() {
    let server = Server::start();
    let (locks, operator) =
        (Locks::open(server.url()).unwrap(), Locks::open(server.url()).unwrap());
    for is_busy in [false, true] {
        let held = locks.mutex("held").blocking_acquire().unwrap();
        have_threads_read(&locks);
        let stops = Arc::new(AtomicBool::new(!is_busy));
        let busy = keep_at_it(&locks, "busy", &stops);
        assert!(operator.blocking_force_release("held", "it hangs").unwrap());
        // Sooner than the next renewal is due.
        let start = Instant::now();
        eventually(PATIENCE, "the holder is told", || held.state() == LockState::Lost);
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        stops.store(true, Ordering::SeqCst);
        busy.join().unwrap().unwrap();
        assert!(held.blocking_release().is_err_and(|error| error.is_lost()));
    }
    server.assert_clean();
}

#[test]
fn a_thread_that_reads_goes_on_when_a_demoted_server_is_promoted_again() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let held = locks.mutex("held").ttl(PATIENCE * 3).blocking_acquire().unwrap();
    have_threads_read(&locks);
    let stops = Arc::new(AtomicBool::new(false));
    let busy = ["one", "other"].map(|key| keep_at_it(&locks, key, &stops));
    for _ in 0..3 {
        server.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", testbed::free_port()));
        let refused = locks.mutex("refused").no_wait().blocking_acquire();
        assert!(matches!(refused, Err(LockError::Backend { .. })), "{refused:?}");
        server.run::<()>("REPLICAOF NO ONE");
        have_threads_read(&locks);
    }
    stops.store(true, Ordering::SeqCst);
    busy.into_iter().for_each(|busy| busy.join().unwrap().unwrap());
    held.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn threads_that_read_end_with_a_shutdown_and_leave_nothing() {
    let server = Server::start();
    for _ in 0..5 {
        let locks = Locks::open(server.url()).unwrap();
        have_threads_read(&locks);
        let stops = Arc::new(AtomicBool::new(false));
        let busy = ["a", "b", "b"].map(|key| keep_at_it(&locks, key, &stops));
        eventually(PATIENCE, "they are at it", || !server.keys().is_empty());
        locks.blocking_shutdown();
        assert!(server.keys().is_empty(), "{:?}", server.keys());
        for busy in busy {
            let outcome = busy.join().unwrap().unwrap_err();
            assert!(matches!(outcome, LockError::Shutdown) || outcome.is_lost(), "{outcome:?}");
        }
    }
    server.assert_clean();
}

#[test]
fn what_lingers_is_handed_over_though_nobody_drives_the_task_that_reads() {
    let server = Server::start();
    let (locks, other) = (Locks::open(server.url()).unwrap(), Locks::open(server.url()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reads = Reader::Task(runtime.handle().id());
    let request = locks.mutex("job").ttl(PATIENCE * 6).linger(PATIENCE * 6);
    let have_it_linger = || {
        eventually(PATIENCE, "a task reads, and the lease stays", || {
            runtime.block_on(async {
                pairs(locks.clone(), 400).await;
                request.clone().acquire().await.unwrap().release().await.unwrap();
            });
            reader(&locks) == reads && server.exists("lock:job")
        });
    };
    for _ in 0..3 {
        have_it_linger();
        let start = Instant::now();
        let guard = other.mutex("job").wait(PATIENCE * 2).blocking_acquire().unwrap();
        assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
        guard.blocking_release().unwrap();
        eventually(PATIENCE, "the engine reads", || reader(&locks) == Reader::Engine);
    }
    have_it_linger();
    locks.blocking_shutdown();
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    server.assert_clean();
}
