//! Tasks that read, beside threads that wait, and at the end.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testbed::{Server, eventually};
use tokio::runtime::Runtime;

use super::runtime::RuntimeId;
use super::tests::{PATIENCE, Still};
use crate::{Guard, LockError, LockState, Locks};

pub(super) fn reader(locks: &Locks) -> Option<RuntimeId> {
    locks.link().core().only_path().traffic().role.runtime()
}

async fn pairs(locks: Locks, count: usize) {
    for _ in 0..count {
        locks.mutex("warm").acquire().await.unwrap().release().await.unwrap();
    }
}

fn blocking_pairs(locks: &Locks, count: usize) {
    for _ in 0..count {
        locks.mutex("warm").blocking_acquire().unwrap().blocking_release().unwrap();
    }
}

pub(super) fn two_workers() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A server, and locks that connect to it when they are first needed.
pub(super) fn server_and_locks() -> (Server, Locks) {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    (server, locks)
}

/// How long a command may take where the server is frozen.
const LIMIT: Duration = Duration::from_millis(500);

/// A server, and locks that give up a command after [`LIMIT`].
fn server_and_impatient_locks() -> (Server, Locks) {
    let server = Server::start();
    let locks = Locks::builder().url(server.url()).command_timeout(LIMIT).open().unwrap();
    (server, locks)
}

/// A runtime whose tasks run only while a thread blocks on it.
pub(super) fn current_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Asks for a lock in vain while the server is frozen, so that nothing comes at the socket. Before the
/// server goes on, `check` is given how long that took.
fn ask_frozen_server(server: &Server, locks: &Locks, check: impl FnOnce(Duration)) {
    server.freeze();
    let start = Instant::now();
    let outcome = locks.mutex("frozen").wait(LIMIT).blocking_acquire();
    check(start.elapsed());
    assert!(outcome.is_err());
    server.thaw();
    eventually(PATIENCE, "no lock is left", || !server.exists("lock:frozen"));
}

/// Warms up until a task of the runtime reads.
pub(super) fn have_a_task_read(locks: &Locks, runtime: &Runtime) {
    let reads = Some(runtime.handle().id().into());
    eventually(PATIENCE, "a task reads", || {
        runtime.block_on(async { tokio::spawn(pairs(locks.clone(), 400)).await.unwrap() });
        reader(locks) == reads
    });
}

pub(super) fn assert_no_task(runtime: &Runtime) {
    let metrics = runtime.metrics();
    eventually(PATIENCE, "the reading task ends", || metrics.num_alive_tasks() == 0);
}

#[test]
fn a_task_of_a_busy_runtime_reads_and_the_engine_when_it_has_ended() {
    let (server, locks) = server_and_locks();
    let pairs = |count| pairs(locks.clone(), count);
    let runtime = two_workers();
    runtime.block_on(async { tokio::spawn(pairs(20)).await.unwrap() });
    assert!(reader(&locks).is_none(), "a few commands are not worth it");
    let reads = Some(runtime.handle().id().into());
    // On a busy machine the engine may take the role back meanwhile.
    eventually(PATIENCE, "a task reads", || {
        runtime.block_on(async { tokio::spawn(pairs(400)).await.unwrap() });
        reader(&locks) == reads
    });
    drop(runtime);
    eventually(PATIENCE, "the engine reads again", || reader(&locks).is_none());
    locks.mutex("after").blocking_acquire().unwrap().blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_thread_that_waits_at_a_frozen_server_is_never_late() {
    let (server, locks) = server_and_impatient_locks();
    blocking_pairs(&locks, 300);
    ask_frozen_server(&server, &locks, |waited| {
        assert!(waited < LIMIT * 2 + PATIENCE / 4, "{waited:?}");
    });
    blocking_pairs(&locks, 300);
    // A restart is noticed, whoever reads.
    server.restart();
    eventually(PATIENCE, "it works again", || locks.mutex("after").blocking_acquire().is_ok());
    eventually(PATIENCE, "no lock is left", || !server.exists("lock:after"));
    server.assert_clean();
}

#[test]
fn a_runtime_that_nobody_drives_has_one_task_that_is_to_read() {
    let (server, locks) = server_and_locks();
    let runtime = current_thread();
    let _entered = runtime.enter();
    for _ in 0..1000 {
        drop(locks.mutex("dropped").blocking_acquire().unwrap());
    }
    assert!(runtime.metrics().num_alive_tasks() <= 1);
    eventually(PATIENCE, "nothing is left", || server.keys().is_empty());
    server.assert_clean();
}

#[test]
fn threads_and_tasks_that_wait_side_by_side_all_get_their_answers() {
    let (server, locks) = server_and_locks();
    let lease = Duration::from_millis(1_500);
    let held = locks.mutex("renewed").ttl(lease).blocking_acquire().unwrap();
    let (runtime, end) = (two_workers(), Instant::now() + lease * 2);
    let task = runtime.spawn({
        let locks = locks.clone();
        async move {
            while Instant::now() < end {
                pairs(locks.clone(), 100).await;
            }
        }
    });
    thread::scope(|scope| {
        for number in 0..4 {
            let locks = &locks;
            scope.spawn(move || {
                for round in (0..).take_while(|_| Instant::now() < end) {
                    // Keys of its own, and one for which all wait.
                    let key = if round % 10 == 0 { "all".into() } else { format!("own:{number}") };
                    locks.mutex(key).blocking_acquire().unwrap().blocking_release().unwrap();
                }
            });
        }
    });
    runtime.block_on(task).unwrap();
    assert!(held.is_held());
    held.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_task_of_a_current_thread_runtime_reads_until_nobody_drives_it() {
    let (server, locks) = server_and_locks();
    let runtime = current_thread();
    let reads = Some(runtime.handle().id().into());
    for _ in 0..3 {
        eventually(PATIENCE, "a task reads", || {
            runtime.block_on(pairs(locks.clone(), 400));
            reader(&locks) == reads
        });
        // An answer to somebody else waits until the engine takes the role back, and no further one.
        locks.mutex("other").blocking_acquire().unwrap().blocking_release().unwrap();
        assert!(reader(&locks).is_none());
    }
    server.assert_clean();
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
    let (server, locks) = server_and_impatient_locks();
    let runtime = two_workers();
    have_a_task_read(&locks, &runtime);
    ask_frozen_server(&server, &locks, |_| assert_no_task(&runtime));
    have_a_task_read(&locks, &runtime);
    server.assert_clean();
}

/// Takes and releases a lock again and again on a thread of its own, whatever the server says, until
/// it is asked to stop or the lock can't be had any more.
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
fn a_hold_that_is_ended_by_force_is_lost_at_once_beside_busy_threads() {
    let server = Server::start();
    let (locks, operator) =
        (Locks::open(server.url()).unwrap(), Locks::open(server.url()).unwrap());
    for is_busy in [false, true] {
        let held = locks.mutex("held").blocking_acquire().unwrap();
        blocking_pairs(&locks, 300);
        let stops = Arc::new(AtomicBool::new(!is_busy));
        let busy = keep_at_it(&locks, "busy", &stops);
        assert!(operator.blocking_force_release("held", "it hangs").unwrap());
        // Sooner than the next renewal is due.
        let start = Instant::now();
        eventually(PATIENCE, "the holder learns of its loss", || held.state() == LockState::Lost);
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        stops.store(true, Ordering::SeqCst);
        busy.join().unwrap().unwrap();
        assert!(held.blocking_release().is_err_and(|error| error.is_lost()));
    }
    server.assert_clean();
}

#[test]
fn a_busy_thread_goes_on_when_a_demoted_server_is_promoted_again() {
    let (server, locks) = server_and_locks();
    let held = locks.mutex("held").ttl(PATIENCE * 3).blocking_acquire().unwrap();
    blocking_pairs(&locks, 300);
    let stops = Arc::new(AtomicBool::new(false));
    let busy = ["one", "other"].map(|key| keep_at_it(&locks, key, &stops));
    for _ in 0..3 {
        server.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", testbed::free_port()));
        let refused = locks.mutex("refused").no_wait().blocking_acquire();
        assert!(matches!(refused, Err(LockError::Backend { .. })), "{refused:?}");
        server.run::<()>("REPLICAOF NO ONE");
        blocking_pairs(&locks, 300);
    }
    stops.store(true, Ordering::SeqCst);
    busy.into_iter().for_each(|busy| busy.join().unwrap().unwrap());
    held.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn busy_threads_end_with_a_shutdown_and_leave_nothing() {
    let server = Server::start();
    for _ in 0..5 {
        let locks = Locks::open(server.url()).unwrap();
        blocking_pairs(&locks, 300);
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
    let runtime = current_thread();
    let reads = Some(runtime.handle().id().into());
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
        eventually(PATIENCE, "the engine reads", || reader(&locks).is_none());
    }
    have_it_linger();
    locks.blocking_shutdown();
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    server.assert_clean();
}

/// A waker that blocks for as long as its mutex is locked.
pub(super) struct Blocks(pub(super) Arc<Mutex<()>>);

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock());
    }
}

pub(super) type Asked = Pin<Box<dyn Future<Output = Result<Guard, LockError>> + Send>>;

/// Asks for a lock, and has this waker called when the answer is there.
pub(super) fn ask(locks: &Locks, number: usize, waker: &Waker) -> Asked {
    let mut asked: Asked = Box::pin(locks.mutex(format!("key{number}")).acquire());
    assert!(asked.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    asked
}

#[test]
fn all_that_has_arrived_is_handed_over_though_the_first_waker_blocks_the_task_that_reads() {
    let (server, locks) = server_and_locks();
    let runtime = two_workers();
    have_a_task_read(&locks, &runtime);
    let connection = || locks.link().core().only_path().traffic().epoch();
    let before = connection();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let blocks = Waker::from(Arc::new(Blocks(Arc::clone(&gate))));
    // More than the task hands over at once. All of them are answered at the same time.
    server.freeze();
    let many = locks.clone();
    let asking = async move {
        let first = ask(&many, 0, &blocks);
        let others: Vec<_> = (1..100).map(|number| ask(&many, number, Waker::noop())).collect();
        (first, others)
    };
    let (first, mut others) =
        runtime.block_on(async { tokio::spawn(asking).await }).expect("no panic");
    server.thaw();
    let mut guards = Vec::new();
    eventually(PATIENCE, "the others are notified", || {
        others.retain_mut(|asked| {
            let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(outcome) = polled else { return true };
            guards.push(outcome.unwrap());
            false
        });
        others.is_empty()
    });
    assert_eq!(connection(), before, "it is not taken for silent");
    drop(closed);
    guards.push(runtime.block_on(first).unwrap());
    guards.into_iter().for_each(|guard| guard.blocking_release().unwrap());
    server.assert_clean();
}

#[test]
fn a_runtime_is_dropped_in_a_forked_child_although_a_thread_of_the_parent_had_the_lock() {
    let (server, locks) = server_and_locks();
    for is_only_asked in [false, true] {
        let runtime = current_thread();
        if is_only_asked {
            let _entered = runtime.enter();
            locks.link().core().ask_task_to_read(super::places::FIRST);
        } else {
            have_a_task_read(&locks, &runtime);
        }
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        let (says, said) = mpsc::channel();
        let ended = {
            let _locked = locks.link().core().only_path().traffic();
            thread::spawn(move || {
                // Here the process has another id.
                let _still = Still::begin();
                drop(runtime);
                let _ = says.send(());
            });
            said.recv_timeout(PATIENCE)
        };
        assert_eq!(ended, Ok(()));
        // In the parent the engine reads again, because the task does not.
        locks.mutex("after").blocking_acquire().unwrap().blocking_release().unwrap();
    }
    server.assert_clean();
}
