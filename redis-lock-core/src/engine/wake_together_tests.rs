//! Tasks that are woken together, beside wakers that block.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use testbed::{WakeLog, eventually};
use tokio::task::LocalSet;

use super::core::Work;
use super::notices::Notice;
use super::reading_tests::{Blocks, ask, have_a_task_read, server_and_locks, two_workers};
use super::tests::PATIENCE;
use super::wake_together::{MIN_TOGETHER, WakeTogether, WokenTasks};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::once::once;

#[test]
fn many_tasks_are_woken_when_the_worker_looks_for_io_and_few_at_once() {
    let (server, locks) = server_and_locks();
    let runtime = two_workers();
    let core = Arc::clone(locks.link().core());
    let task = async move {
        let together =
            WakeTogether::of_this_task(&core.woken_tasks).await.expect("there are two workers");
        for (count, are_many) in [(MIN_TOGETHER - 1, false), (MIN_TOGETHER, true)] {
            let log = WakeLog::new();
            (0..count).for_each(|_| together.add(log.waker()));
            assert_eq!(together.wake(), are_many);
            assert_eq!(log.count(), if are_many { 0 } else { count });
            let start = Moment::now();
            while log.count() < count && Moment::now().since(start) < PATIENCE {
                tokio::task::yield_now().await;
            }
            assert_eq!(log.count(), count);
        }
    };
    runtime.block_on(runtime.spawn(task)).unwrap();
    server.assert_clean();
}

#[test]
fn a_task_that_has_added_none_leaves_those_of_others_alone() {
    let runtime = two_workers();
    let task = async {
        let (woken, log) = (Arc::<WokenTasks>::default(), WakeLog::new());
        let together = WakeTogether::of_this_task(&woken).await.expect("there are two workers");
        woken.add(log.waker());
        assert!(!together.wake());
        assert_eq!(log.count(), 0);
        together.add(log.waker());
        assert!(!together.wake());
        assert_eq!(log.count(), 2);
    };
    runtime.block_on(runtime.spawn(task)).unwrap();
}

#[test]
fn a_task_alone_is_woken_at_once_and_several_by_the_task_that_reads() {
    let (server, locks) = server_and_locks();
    let runtime = two_workers();
    let core = Arc::clone(locks.link().core());
    let task = async move {
        let mut work = Box::<Work>::default();
        work.together = WakeTogether::of_this_task(&core.woken_tasks).await;
        for (count, are_listed) in [(1, false), (2, true)] {
            let mut callers = Vec::new();
            for _ in 0..count {
                let (handle, mut caller) = once();
                poll_fn(|context| Poll::Ready(pin!(&mut caller).poll(context).is_pending())).await;
                work.notices.push_back(Notice::Fail(handle, Box::new(LockError::Shutdown)));
                callers.push(caller);
            }
            core.read(&mut work);
            assert_eq!(core.woken_tasks.due() != Moment::NEVER, are_listed);
            assert!(!work.together.as_ref().expect("it is kept").wake(), "they are few");
            assert_eq!(core.woken_tasks.due(), Moment::NEVER);
            for caller in callers {
                assert!(matches!(caller.await, Ok(Err(error)) if *error == LockError::Shutdown));
            }
        }
    };
    runtime.block_on(runtime.spawn(task)).unwrap();
    server.assert_clean();
}

#[test]
fn wakers_of_tasks_are_distinguished_from_others() {
    let (server, locks) = server_and_locks();
    let runtime = two_workers();
    let core = Arc::clone(locks.link().core());
    let own_waker = || poll_fn(|context| Poll::Ready(context.waker().clone()));
    let another = runtime.block_on(runtime.spawn(own_waker())).unwrap();
    let main = runtime.block_on(own_waker());
    let together = async move { WakeTogether::of_this_task(&core.woken_tasks).await };
    let together = runtime.block_on(runtime.spawn(together)).unwrap().expect("two workers");
    assert!(together.is_of_task(&another));
    let others = [main, Waker::noop().clone(), WakeLog::new().waker()];
    assert!(others.iter().all(|waker| !together.is_of_task(waker)), "they may be anything");
    server.assert_clean();
}

#[test]
fn tasks_are_woken_one_by_one_where_there_is_one_worker() {
    let (server, locks) = server_and_locks();
    let core = locks.link().core();
    let one = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    assert!(one.block_on(WakeTogether::of_this_task(&core.woken_tasks)).is_none());
    let none = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(none.block_on(WakeTogether::of_this_task(&core.woken_tasks)).is_none());
    server.assert_clean();
}

#[test]
fn tasks_get_their_answers_while_the_waker_of_another_caller_blocks_the_task_that_reads() {
    const TASKS: usize = MIN_TOGETHER * 4;
    let (server, locks) = server_and_locks();
    let runtime = two_workers();
    have_a_task_read(&locks, &runtime);
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let blocks = Waker::from(Arc::new(Blocks(Arc::clone(&gate))));
    // All of them are answered at the same time, the one that blocks in the middle.
    server.freeze();
    let asked = Arc::new(AtomicUsize::new(0));
    let spawn = |number: usize| {
        let (locks, asked) = (locks.clone(), Arc::clone(&asked));
        runtime.spawn(async move {
            let mut asking = pin!(locks.mutex(format!("task{number}")).acquire());
            let first = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
            assert!(first.is_pending());
            asked.fetch_add(1, Ordering::SeqCst);
            asking.await
        })
    };
    let have_asked = |count| {
        eventually(PATIENCE, "they have asked", || asked.load(Ordering::SeqCst) == count);
    };
    let mut tasks: Vec<_> = (0..TASKS / 2).map(spawn).collect();
    have_asked(TASKS / 2);
    let others = locks.clone();
    let blocked =
        runtime.block_on(runtime.spawn(async move { (ask(&others, 0, &blocks),) })).unwrap();
    tasks.extend((TASKS / 2..TASKS).map(spawn));
    have_asked(TASKS);
    server.thaw();
    eventually(PATIENCE, "all tasks run", || tasks.iter().all(|task| task.is_finished()));
    drop(closed);
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap().unwrap().release().await.unwrap();
        }
        blocked.0.await.unwrap().release().await.unwrap();
    });
    locks.blocking_shutdown();
    server.assert_clean();
}

/// A waker that panics, after it has noted that.
struct Panics(Arc<WakeLog>);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.waker().wake();
        panic!("a waker panics");
    }
}

#[test]
fn a_worker_outlives_the_waker_of_a_local_set_that_panics() {
    let (server, locks) = server_and_locks();
    let runtime = two_workers();
    have_a_task_read(&locks, &runtime);
    let (local, log) = (LocalSet::new(), WakeLog::new());
    server.freeze();
    let tasks: Vec<_> = (0..MIN_TOGETHER * 2)
        .map(|number| local.spawn_local(locks.mutex(format!("local{number}")).acquire()))
        .collect();
    let mut local = pin!(local);
    let waker = Waker::from(Arc::new(Panics(Arc::clone(&log))));
    assert!(local.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    server.thaw();
    eventually(PATIENCE, "it panics", || log.count() > 0);
    eventually(PATIENCE, "all are woken", || {
        let _ = local.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        tasks.iter().all(|task| task.is_finished())
    });
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap().unwrap().release().await.unwrap();
        }
        let mutex = locks.mutex("after");
        let guard = tokio::spawn(async move { mutex.acquire().await }).await.unwrap();
        guard.unwrap().release().await.unwrap();
    });
    locks.blocking_shutdown();
    server.assert_clean();
}

#[test]
fn the_engine_goes_on_though_the_waker_of_a_local_set_blocks() {
    let (server, locks) = server_and_locks();
    let core = locks.link().core();
    locks.mutex("first").blocking_acquire().unwrap().blocking_release().unwrap();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let log = WakeLog::new();
    core.woken_tasks.add(Waker::from(Arc::new(Blocks(Arc::clone(&gate)))));
    (0..MIN_TOGETHER).for_each(|_| core.woken_tasks.add(log.waker()));
    core.waker.wake();
    eventually(PATIENCE, "the others are woken", || log.count() == MIN_TOGETHER);
    locks.mutex("after").blocking_acquire().unwrap().blocking_release().unwrap();
    drop(closed);
    locks.blocking_shutdown();
    server.assert_clean();
}

#[test]
fn where_tasks_would_wait_for_long_they_are_woken_at_once_and_it_is_tried_again() {
    let woken = WokenTasks::default();
    let may_wait = || {
        (0..MIN_TOGETHER).for_each(|_| woken.add(Waker::noop().clone()));
        woken.may_wait()
    };
    assert!(may_wait());
    woken.note_delay(Moment::now().after(Duration::from_millis(2)));
    assert!(may_wait(), "once tells little");
    woken.note_delay(Moment::now().after(Duration::from_millis(60)));
    let tries = (1..10_000).find(|_| may_wait()).expect("it is tried again");
    assert!(tries > 50, "{tries}");
}
