//! Callers on several current-thread runtimes that share one `Locks`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testbed::{Server, WakeLog, eventually};
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;

use super::notices::Notice;
use super::path::Reader;
use super::reading_tests::{Asked, Blocks, ask, current_thread, reader, server_and_locks};
use super::tests::PATIENCE;
use crate::Locks;
use crate::domain::clock::Moment;

/// More than one, so that the notifier is worth it.
const CALLERS: usize = 8;

/// A key that nobody else asks for, so that each pair takes two commands.
async fn pairs(locks: &Locks, key: String, count: usize) {
    for _ in 0..count {
        locks.mutex(key.as_str()).acquire().await.unwrap().release().await.unwrap();
    }
}

/// A runtime on a thread of its own that asks again and again, so that its task reads.
struct BusyRuntime {
    id: runtime::Id,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyRuntime {
    fn begin(locks: &Locks) -> Self {
        let (runtime, stops) = (current_thread(), Arc::new(AtomicBool::new(false)));
        let (id, locks) = (runtime.handle().id(), locks.clone());
        let thread = thread::spawn({
            let stops = Arc::clone(&stops);
            move || {
                runtime.block_on(async {
                    while !stops.load(Ordering::SeqCst) {
                        pairs(&locks, "busy".into(), 10).await;
                    }
                });
            }
        });
        Self { id, stops, thread: Some(thread) }
    }
}

impl Drop for BusyRuntime {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "{ended:?}");
    }
}

/// A server, locks, a runtime whose task reads, and another one that has a notifier.
fn two_runtimes() -> (Server, Locks, BusyRuntime, Runtime) {
    let (server, locks) = server_and_locks();
    let busy = BusyRuntime::begin(&locks);
    let runtime = current_thread();
    have_a_notifier(&locks, &busy, &runtime);
    (server, locks, busy, runtime)
}

fn has_notifier(locks: &Locks, runtime: &Runtime) -> bool {
    locks.link().core().notices.runtimes.has(runtime.handle().id())
}

/// Warms up until the runtime has a notifier, while a task of the busy one reads.
fn have_a_notifier(locks: &Locks, busy: &BusyRuntime, runtime: &Runtime) {
    let busy_reads = || reader(locks) == Reader::Task(busy.id);
    eventually(PATIENCE, "a task notifies", || {
        if !busy_reads() {
            // The engine takes the role back as long as nobody drives this runtime.
            return false;
        }
        runtime.block_on(async {
            let mut running = JoinSet::new();
            for number in 0..CALLERS {
                let locks = locks.clone();
                running.spawn(async move { pairs(&locks, format!("own:{number}"), 50).await });
            }
            running.join_all().await;
        });
        has_notifier(locks, runtime) && busy_reads()
    });
}

/// Has callers of a runtime ask while the server is frozen, so that all are answered together.
fn ask_together(server: &Server, locks: &Locks, runtime: &Runtime, wakers: &[Waker]) -> Vec<Asked> {
    server.freeze();
    let locks = locks.clone();
    let asking = async move {
        let wakers = wakers.iter().enumerate();
        wakers.map(|(number, waker)| ask(&locks, number, waker)).collect()
    };
    let asked = runtime.block_on(asking);
    server.thaw();
    asked
}

fn release_all(asked: Vec<Asked>) {
    for mut asked in asked {
        eventually(PATIENCE, "it has the lock", || {
            let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(outcome) = polled else { return false };
            outcome.unwrap().blocking_release().unwrap();
            true
        });
    }
}

#[test]
fn callers_are_notified_on_the_thread_of_their_runtime_though_another_reads() {
    let (server, locks, busy, runtime) = two_runtimes();
    let here = thread::current().id();
    // On a busy machine this runtime may be taken for one that does not run.
    eventually(PATIENCE, "a thread notifies its own callers", || {
        have_a_notifier(&locks, &busy, &runtime);
        let wakes = WakeLog::new();
        let wakers = vec![wakes.waker(); CALLERS];
        let asked = ask_together(&server, &locks, &runtime, &wakers);
        runtime.block_on(async {
            while wakes.count() < CALLERS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        release_all(asked);
        wakes.threads().contains(&here)
    });
    drop(busy);
    server.assert_clean();
}

#[test]
fn callers_on_a_runtime_that_nobody_drives_are_notified_all_the_same() {
    let (server, locks, busy, runtime) = two_runtimes();
    for _ in 0..3 {
        have_a_notifier(&locks, &busy, &runtime);
        let wakes = WakeLog::new();
        let asked = ask_together(&server, &locks, &runtime, &vec![wakes.waker(); CALLERS]);
        eventually(PATIENCE, "all are notified", || wakes.count() == CALLERS);
        assert!(!has_notifier(&locks, &runtime), "further answers would come as late");
        release_all(asked);
    }
    drop(busy);
    server.assert_clean();
}

#[test]
fn a_runtime_that_nobody_drives_gets_no_second_notifier() {
    let (locks, runtime) = (Locks::in_memory(), current_thread());
    let (core, here) = (locks.link().core(), runtime.handle().id());
    let entered = runtime.enter();
    for _ in 0..3 {
        core.open_notifier();
        let reply = tokio::sync::oneshot::channel().0;
        core.notices.runtimes.add(
            here,
            &mut [Notice::Ready(reply, Box::new(Ok(())))].into(),
            Moment::START,
        );
        core.notices.runtimes.close_stuck(Moment::now(), &mut VecDeque::new());
        assert!(!has_notifier(&locks, &runtime));
    }
    assert_eq!(runtime.metrics().num_alive_tasks(), 1, "nothing piles up there");
    drop(entered);
    eventually(PATIENCE, "the old one ends", || {
        runtime.block_on(tokio::task::yield_now());
        runtime.metrics().num_alive_tasks() == 0
    });
    let _entered = runtime.enter();
    core.open_notifier();
    assert!(has_notifier(&locks, &runtime), "it runs again");
}

#[test]
fn what_a_notifier_leaves_behind_is_carried_out_though_no_engine_runs_any_more() {
    let (locks, runtime) = (Locks::in_memory(), current_thread());
    let (core, here) = (locks.link().core(), runtime.handle().id());
    {
        let _entered = runtime.enter();
        core.open_notifier();
    }
    let (reply, mut answer) = tokio::sync::oneshot::channel();
    core.notices.runtimes.add(
        here,
        &mut [Notice::Ready(reply, Box::new(Ok(())))].into(),
        Moment::now(),
    );
    drop(runtime);
    eventually(PATIENCE, "the caller gets its answer", || matches!(answer.try_recv(), Ok(Ok(()))));
}

#[test]
fn a_waker_that_blocks_the_thread_of_its_runtime_keeps_nobody_waiting() {
    let (server, locks, busy, runtime) = two_runtimes();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let wakes = WakeLog::new();
    let mut wakers = vec![wakes.waker(); CALLERS];
    wakers[1] = Waker::from(Arc::new(Blocks(Arc::clone(&gate))));
    let asked = ask_together(&server, &locks, &runtime, &wakers);
    thread::scope(|scope| {
        let (is_over, ends) = tokio::sync::oneshot::channel::<()>();
        scope.spawn(|| drop(runtime.block_on(ends)));
        eventually(PATIENCE, "the others are notified", || wakes.count() == CALLERS - 1);
        drop((closed, is_over));
    });
    release_all(asked);
    drop(busy);
    server.assert_clean();
}

#[test]
fn what_the_callers_of_a_runtime_that_stands_still_have_put_on_the_queue_is_sent() {
    let (server, locks, busy, runtime) = two_runtimes();
    let traffic = || locks.link().core().only_path().traffic();
    server.freeze();
    eventually(PATIENCE, "an answer is to come", || traffic().has_questions());
    // As if its notifier were about to send.
    traffic().begin_batch(runtime.handle().id());
    let asked = {
        let _entered = runtime.enter();
        ask(&locks, 0, Waker::noop())
    };
    eventually(PATIENCE, "the engine sends it", || traffic().is_flushed());
    server.thaw();
    release_all(vec![asked]);
    drop(busy);
    server.assert_clean();
}

#[test]
fn a_notifier_ends_with_the_engine_and_with_its_runtime() {
    let (server, locks, busy, runtime) = two_runtimes();
    drop(runtime);
    eventually(PATIENCE, "its list is closed", || !locks.link().core().notices.runtimes.has_any());
    for shuts_down in [true, false] {
        let other = Locks::open(server.url()).unwrap();
        let (reads, runtime) = (BusyRuntime::begin(&other), current_thread());
        have_a_notifier(&other, &reads, &runtime);
        drop(reads);
        if shuts_down {
            other.blocking_shutdown();
        }
        drop(other);
        eventually(PATIENCE, "the notifier ends", || {
            runtime.block_on(tokio::task::yield_now());
            runtime.metrics().num_alive_tasks() == 0
        });
    }
    drop(busy);
    server.assert_clean();
}
