//! Wakers are the user's code: they may block, panic, and use the library.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use testbed::{Server, WakeLog, eventually};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::lock_id::LockId;
use super::reading_tests::{
    Blocks, ask, current_thread, have_a_task_read, server_and_locks, two_workers,
};
use super::table::Handle;
use super::tests::{PATIENCE, Still, have_a_lease_linger};
use crate::domain::clock::Moment;
use crate::domain::env::simulated;
use crate::lock::{WaitingCall, Wants};
use crate::{Guard, LockError, Locks};

/// The waker of a user's executor.
struct OwnWaker<F>(AtomicUsize, F);

impl<F: Fn() + Send + Sync + 'static> OwnWaker<F> {
    fn new(when_called: F) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(0), when_called))
    }
}

impl<F: Fn() + Send + Sync + 'static> Wake for OwnWaker<F> {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        (self.1)();
    }
}

fn held(locks: &Locks) -> Guard {
    locks.mutex("k").blocking_acquire().unwrap()
}

/// Whether another thread can step the machine of the lock.
fn can_be_stepped(locks: &Locks) -> bool {
    let (says, said) = mpsc::channel();
    let locks = locks.clone();
    thread::spawn(move || says.send(locks.link().views("lock:k").len()));
    said.recv_timeout(PATIENCE).is_ok()
}

#[test]
fn the_waker_of_the_next_caller_runs_while_nothing_is_locked() {
    let locks = Locks::in_memory();
    let guard = held(&locks);
    let (says, said) = mpsc::channel();
    let other = locks.clone();
    let own = OwnWaker::new(move || says.send(can_be_stepped(&other)).unwrap());
    let waker = Waker::from(Arc::clone(&own));
    let mut next = pin!(locks.mutex("k").acquire());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    guard.blocking_release().unwrap();
    assert_eq!(said.try_recv(), Ok(true), "it was called, before the release returned");
    assert_eq!(own.0.load(Ordering::SeqCst), 1);
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

/// Says when it is dropped whether the machine of the lock can be stepped.
struct SaysWhenDropped(Locks, mpsc::Sender<bool>);

impl Wake for SaysWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for SaysWhenDropped {
    fn drop(&mut self) {
        self.1.send(can_be_stepped(&self.0)).unwrap();
    }
}

#[test]
fn the_waker_of_a_caller_that_gives_up_is_dropped_while_nothing_is_locked() {
    let locks = Locks::in_memory();
    let guard = held(&locks);
    let (says, said) = mpsc::channel();
    let waker = Waker::from(Arc::new(SaysWhenDropped(locks.clone(), says)));
    let mut next = Box::pin(locks.mutex("k").acquire());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(said.try_recv().is_err(), "it is waited for");
    drop(next);
    assert_eq!(said.try_recv(), Ok(true));
    guard.blocking_release().unwrap();
}

#[test]
fn what_is_asked_on_a_runtime_that_stands_still_is_answered() {
    let (server, locks) = server_and_locks();
    let runtime = current_thread();
    for _ in 0..3 {
        have_a_task_read(&locks, &runtime);
        let log = WakeLog::new();
        let mut asked = {
            let _entered = runtime.enter();
            ask(&locks, 0, &log.waker())
        };
        eventually(PATIENCE, "the engine notifies the caller", || log.count() > 0);
        let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(guard) = polled else { panic!("it was woken for nothing") };
        guard.unwrap().blocking_release().unwrap();
    }
    server.assert_clean();
}

#[test]
fn a_waker_that_panics_keeps_the_lock_from_nobody() {
    let locks = Locks::in_memory();
    let guard = held(&locks);
    let waker = Waker::from(OwnWaker::new(|| panic!("on purpose")));
    let mut next = Box::pin(locks.mutex("k").acquire());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    guard.blocking_release().unwrap();
    let Poll::Ready(next) = next.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("it has the lock");
    };
    next.unwrap().blocking_release().unwrap();
    held(&locks).blocking_release().unwrap();
}

#[test]
fn what_is_handed_to_a_caller_that_is_gone_is_released() {
    let locks = Locks::in_memory();
    let guard = held(&locks);
    let core = locks.link().core();
    let demand = Arc::clone(&guard.hold().demand);
    let (answer, mut awaited) = oneshot::channel();
    let id = LockId::of(&demand, || 0);
    let handle = Handle { id: id.clone(), answer };
    core.act(|work| {
        core.step_in(
            &id,
            Some(&demand),
            |_| 0,
            work,
            |machine, env| {
                let id = core.number();
                let waiter = |demand, asked| WaitingCall { id, handle, demand, asked };
                assert!(machine.ask(Arc::clone(&guard.hold().demand), waiter, env).is_none());
            },
        );
    });
    // As a caller that is dropped on another thread, before it has left the queue.
    awaited.close();
    guard.blocking_release().unwrap();
    eventually(PATIENCE, "the lock is free", || {
        locks.mutex("k").blocking_try_acquire().unwrap().is_some()
    });
}
#[test]
fn a_waiter_that_a_hand_over_refuses_is_told() {
    let locks = Locks::in_memory();
    held(&locks).blocking_release().unwrap();
    let process = crate::domain::env::process();
    let later = Moment::now().after(Duration::from_secs(3_600));
    // On this thread it is an hour later, so the engine's own timers come too late.
    let _still = Still::begin();
    simulated::set_now(later.as_nanos());
    simulated::set_process(process);
    let guard = held(&locks);
    let own = [(); 2].map(|()| OwnWaker::new(|| {}));
    let wakers = own.clone().map(Waker::from);
    let [mut short, mut long] = [Duration::from_millis(1), PATIENCE]
        .map(|wait| Box::pin(locks.mutex("k").wait(wait).acquire()));
    assert!(short.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
    assert!(long.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
    simulated::set_now(later.after(Duration::from_millis(5)).as_nanos());
    guard.blocking_release().unwrap();
    assert_eq!(own.map(|own| own.0.load(Ordering::SeqCst)), [1, 1]);
    let short = short.as_mut().poll(&mut Context::from_waker(&wakers[0]));
    assert!(matches!(short, Poll::Ready(Err(LockError::Busy { .. }))), "{short:?}");
    let long = long.as_mut().poll(&mut Context::from_waker(&wakers[1]));
    assert!(matches!(long, Poll::Ready(Ok(_))), "{long:?}");
}

#[test]
fn tasks_get_their_answers_while_the_waker_of_another_caller_blocks_the_task_that_reads() {
    const TASKS: usize = 16;
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
    // Tokio keeps the task that was woken last for the worker which woke it, and that is blocked.
    eventually(PATIENCE, "all tasks run but one", || {
        tasks.iter().filter(|task| !task.is_finished()).count() <= 1
    });
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
    let tasks: Vec<_> = (0..8)
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

/// Has a hold end by `end` while two callers ask the server about it.
fn end_while_asked(server: &Server, locks: &Locks, guard: Guard, end: fn(Guard)) {
    let (says, said) = mpsc::channel();
    let other = locks.clone();
    let own = OwnWaker::new(move || says.send(can_be_stepped(&other)).unwrap());
    let waker = Waker::from(own);
    // No answer comes before the end.
    server.freeze();
    let mut outcomes = [(); 2].map(|()| {
        let (confirm, mut outcome) = oneshot::channel();
        locks.link().ask(&LockId::mutex("lock:k"), |machine, env| {
            machine.want(guard.hold(), Wants::Check, confirm, env);
        });
        let polled = pin!(&mut outcome).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        outcome
    });
    end(guard);
    server.thaw();
    for outcome in &mut outcomes {
        assert_eq!(said.recv_timeout(PATIENCE * 2), Ok(true));
        assert!(matches!(outcome.try_recv(), Ok(Err(LockError::Lost { .. }))));
    }
}

#[test]
fn who_asks_about_a_hold_that_ends_is_woken_while_nothing_is_locked() {
    let (server, locks) = server_and_locks();
    end_while_asked(&server, &locks, held(&locks), drop);
    end_while_asked(&server, &locks, held(&locks), |guard| drop(guard.detach()));
    server.run::<()>("DEL lock:k");
    // Taken from a lease that lingers, which it becomes again.
    have_a_lease_linger(&locks, "k");
    let mut request = locks.mutex("k").ttl(PATIENCE * 3);
    request.options.linger = Some(PATIENCE * 2);
    end_while_asked(&server, &locks, request.blocking_acquire().unwrap(), drop);
    locks.blocking_shutdown();
    server.assert_clean();
}

#[test]
fn a_waker_that_blocks_the_thread_of_a_step_keeps_the_news_from_no_other_caller() {
    let locks = Locks::in_memory();
    let guard = held(&locks);
    let (gate, log) = (Arc::new(Mutex::new(())), WakeLog::new());
    let closed = gate.lock().unwrap();
    let wakers = [Waker::from(Arc::new(Blocks(Arc::clone(&gate)))), log.waker()];
    let mut waiting = [(); 2].map(|()| Box::pin(locks.mutex("k").acquire()));
    for (waiting, waker) in waiting.iter_mut().zip(&wakers) {
        assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    let other = locks.clone();
    let refusing = thread::spawn(move || {
        other.link().ask(&LockId::mutex("lock:k"), |machine, env| {
            machine.refuse_all(&LockError::Shutdown, env);
        });
    });
    eventually(PATIENCE, "the second one is woken", || log.count() > 0);
    drop(closed);
    refusing.join().unwrap();
    for waiting in &mut waiting {
        let outcome = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(outcome, Poll::Ready(Err(LockError::Shutdown))), "{outcome:?}");
    }
    guard.blocking_release().unwrap();
}
