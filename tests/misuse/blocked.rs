//! Calls that block a thread of a runtime.

use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, redis_lock};
use testbed::{PATIENCE, holds_for};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// Runs a program that might never end.
#[track_caller]
fn ends<T: Send + 'static>(program: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    thread::spawn(move || done.send(program()));
    outcome.recv_timeout(PATIENCE).expect("it never ended")
}

fn one_thread() -> runtime::Runtime {
    runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[redis_lock(key = "k", via = locks)]
async fn holds(locks: Locks, time: Duration) -> Result<(), LockError> {
    sleep(time).await;
    Ok(())
}

/// Holds the lock until it is dropped, and tells when it has begun.
#[redis_lock(key = "k", via = locks)]
async fn holds_on(locks: Locks, begun: oneshot::Sender<()>) -> Result<(), LockError> {
    let _ = begun.send(());
    std::future::pending().await
}

#[redis_lock(key = "k", via = locks)]
fn blocks(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn is_refused(outcome: &Result<(), LockError>) -> bool {
    matches!(outcome, Err(LockError::Reentrant { key, other_task: true, .. }) if key == "k")
}

/// Has a task hold the key on this thread, and calls `blocked` from another.
fn beside_a_holder<T>(blocked: impl FnOnce(&Locks) -> T) -> T {
    let locks = Locks::in_memory();
    one_thread().block_on(async {
        // The task that holds is known from the first poll after the grant on.
        let (begun, has_begun) = oneshot::channel();
        let holder = tokio::spawn(holds_on(locks.clone(), begun));
        has_begun.await.unwrap();
        let outcome = blocked(&locks);
        holder.abort();
        outcome
    })
}

#[test]
fn h3_a_call_that_would_wait_for_its_own_thread_is_refused_at_once() {
    let (took, outcome) = ends(|| {
        beside_a_holder(|locks| {
            let began = Instant::now();
            let outcome = blocks(locks);
            (began.elapsed(), outcome)
        })
    });
    assert!(is_refused(&outcome), "{outcome:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("spawn_blocking"), "{text}");
}

/// On a runtime with workers as well: the body goes on only when the call beside it has ended.
#[test]
fn a_call_beside_a_body_of_the_same_task_is_refused_at_once() {
    let outcome = ends(|| {
        let locks = Locks::in_memory();
        let joined = async move {
            let (begun, has_begun) = oneshot::channel();
            let body = locks.mutex("k").run(async |_| {
                let _ = begun.send(());
                sleep(Duration::from_millis(50)).await;
            });
            let beside = async {
                has_begun.await.unwrap();
                blocks(&locks)
            };
            let (ran, refused) = tokio::join!(body, beside);
            ran.unwrap();
            blocks(&locks).unwrap();
            refused
        };
        let workers = runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        workers.block_on(workers.spawn(joined)).unwrap()
    });
    assert!(is_refused(&outcome), "{outcome:?}");
}

#[test]
fn the_same_for_blocking_requests_of_every_kind() {
    let outcomes = ends(|| {
        beside_a_holder(|locks| {
            let both = locks.all(["a", "k"]).blocking_acquire();
            [
                locks.mutex("k").blocking_acquire(),
                locks.mutex("k").reentrant().blocking_acquire(),
                both,
            ]
            .map(|outcome| outcome.map(drop))
        })
    });
    for outcome in &outcomes {
        assert!(is_refused(outcome), "{outcome:?}");
    }
}

#[test]
fn a_holder_that_had_waited_with_a_limit_is_one_as_well() {
    let outcome = ends(|| {
        one_thread().block_on(async {
            let locks = Locks::in_memory();
            let _held = locks.mutex("k").wait(Duration::from_secs(1)).acquire().await.unwrap();
            blocks(&locks)
        })
    });
    assert!(is_refused(&outcome), "{outcome:?}");
}

#[test]
fn readers_and_permits_are_refused_where_they_exclude_each_other() {
    let outcomes = ends(|| {
        one_thread().block_on(async {
            let locks = Locks::in_memory();
            let _reader = locks.read("r").acquire().await.unwrap();
            let _permit = locks.permit("p", 2).acquire().await.unwrap();
            let fits =
                [locks.read("r").blocking_acquire(), locks.permit("p", 2).blocking_acquire()];
            let fits = fits.map(|outcome| outcome.map(drop));
            let _other = locks.permit("p", 2).acquire().await.unwrap();
            let blocked =
                [locks.write("r").blocking_acquire(), locks.permit("p", 2).blocking_acquire()];
            (fits, blocked.map(|outcome| outcome.map(drop)))
        })
    });
    let (fits, blocked) = outcomes;
    assert_eq!(fits, [Ok(()), Ok(())]);
    for outcome in blocked {
        assert!(
            matches!(outcome, Err(LockError::Reentrant { other_task: true, .. })),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_wait_with_an_end_is_waited_and_busy() {
    let outcomes = ends(|| {
        beside_a_holder(|locks| {
            let bounded = locks.mutex("k").wait(Duration::from_millis(50)).blocking_acquire();
            (
                bounded.map(drop),
                locks.mutex("k").blocking_try_acquire().map(|guard| guard.is_some()),
            )
        })
    });
    assert!(outcomes.0.as_ref().is_err_and(LockError::is_busy), "{outcomes:?}");
    assert_eq!(outcomes.1, Ok(false));
}

#[test]
fn a_task_that_came_first_would_hold_it_first() {
    let outcome = ends(|| {
        let (locks, elsewhere) = (Locks::in_memory(), mpsc::channel::<()>());
        let held = locks.mutex("k").blocking_acquire().unwrap();
        thread::spawn(move || {
            let _ = elsewhere.1.recv();
            drop(held);
        });
        one_thread().block_on(async {
            let waiter = tokio::spawn(holds(locks.clone(), Duration::from_secs(3600)));
            tokio::task::yield_now().await;
            elsewhere.0.send(()).unwrap();
            let outcome = blocks(&locks);
            waiter.abort();
            outcome
        })
    });
    assert!(is_refused(&outcome), "{outcome:?}");
}

#[test]
fn what_ended_or_is_elsewhere_is_no_obstacle() {
    ends(|| {
        let locks = Locks::in_memory();
        one_thread().block_on(async {
            // Released, given up, of another manager, and of a thread for blocking work.
            locks.mutex("k").acquire().await.unwrap().release().await.unwrap();
            let given_up = locks.mutex("k").acquire();
            drop(given_up);
            let _other = Locks::in_memory().mutex("k").acquire().await.unwrap();
            blocks(&locks).unwrap();
            let held = locks.mutex("k").acquire().await.unwrap();
            let blocked = tokio::task::spawn_blocking({
                let locks = locks.clone();
                move || blocks(&locks)
            });
            // It would be refused at once.
            holds_for(Duration::from_millis(100), "it waits", || !blocked.is_finished());
            drop(held);
            blocked.await.unwrap().unwrap();
        });
    });
}

#[test]
fn a_spawned_task_that_blocks_inside_a_blocking_body_is_refused() {
    #[redis_lock(key = "k", via = locks)]
    fn body(locks: &Locks) -> Result<Result<(), LockError>, LockError> {
        let task = |locks: Locks| async move { blocks(&locks) };
        let spawned = one_thread().block_on(async { tokio::spawn(task(locks.clone())).await });
        Ok(spawned.unwrap())
    }
    let outcome = ends(|| body(&Locks::in_memory())).unwrap();
    assert!(is_refused(&outcome), "{outcome:?}");
}

#[test]
fn a_thread_that_has_worked_for_a_runtime_with_workers_is_refused_like_any_other() {
    let outcome = ends(|| {
        let workers = runtime::Runtime::new().unwrap();
        let blocking = workers.spawn_blocking(|| {
            blocks(&Locks::in_memory()).unwrap();
            beside_a_holder(blocks)
        });
        workers.block_on(blocking).unwrap()
    });
    assert!(is_refused(&outcome), "{outcome:?}");
}

#[test]
fn a_task_without_a_budget_is_refused_like_any_other() {
    let outcome = ends(|| {
        beside_a_holder(|locks| {
            let blocked = async { blocks(locks) };
            let mut blocked = std::pin::pin!(tokio::task::unconstrained(blocked));
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(outcome) = blocked.as_mut().poll(&mut context) else { panic!() };
            outcome
        })
    });
    assert!(is_refused(&outcome), "{outcome:?}");
}

/// The tasks of the runtime go on meanwhile, so the call gets its lock.
#[test]
fn another_thread_that_blocks_on_a_call_waits_for_the_tasks_of_its_runtime() {
    ends(|| {
        let (locks, runtime) = (Locks::in_memory(), one_thread());
        let handle = runtime.handle().clone();
        runtime.block_on(async {
            let held = locks.mutex("k").acquire().await.unwrap();
            let (beside, pooled) = (locks.clone(), locks.clone());
            let (here, there) = (handle.clone(), handle);
            let beside = thread::spawn(move || here.block_on(async { blocks(&beside) }));
            let pooled = move || there.block_on(async { blocks(&pooled) });
            let pooled = tokio::task::spawn_blocking(pooled);
            holds_for(Duration::from_millis(100), "they wait", || {
                !beside.is_finished() && !pooled.is_finished()
            });
            held.release().await.unwrap();
            pooled.await.unwrap().unwrap();
            beside.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_thread_beside_a_runtime_waits_for_its_tasks() {
    ends(|| {
        let (locks, runtime) = (Locks::in_memory(), one_thread());
        let handle = runtime.handle().clone();
        runtime.block_on(async {
            let held = locks.mutex("k").acquire().await.unwrap();
            let beside = {
                let locks = locks.clone();
                thread::spawn(move || {
                    let _entered = handle.enter();
                    blocks(&locks)
                })
            };
            holds_for(Duration::from_millis(100), "it waits", || !beside.is_finished());
            held.release().await.unwrap();
            beside.join().unwrap().unwrap();
        });
    });
}

/// A task of the only worker runs a `LocalSet` that blocks, and so does a thread for blocking work, which
/// is a worker later. Both hand their tasks over afterwards.
#[test]
fn a_worker_that_has_run_a_local_set_hands_its_tasks_over() {
    ends(|| {
        let locks = Locks::in_memory();
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let run_local_set = {
            let locks = locks.clone();
            move || {
                let held = locks.mutex("k").blocking_acquire().unwrap();
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(100));
                    drop(held);
                });
                let locks = locks.clone();
                let local = tokio::task::LocalSet::new();
                runtime::Handle::current().block_on(local.run_until(async move {
                    let blocked = async move { blocks(&locks) };
                    tokio::task::spawn_local(blocked).await.unwrap().unwrap();
                }));
            }
        };
        let on_worker = run_local_set.clone();
        let task = async move { tokio::task::block_in_place(on_worker) };
        runtime.block_on(async { tokio::spawn(task).await.unwrap() });
        runtime.block_on(runtime.spawn_blocking(run_local_set)).unwrap();
        runtime.block_on(async {
            // One after the other is blocked, so each thread that may be the worker is.
            for _ in 0..4 {
                let (begun, has_begun) = oneshot::channel();
                let locks = locks.clone();
                let blocked = tokio::spawn(async move {
                    let holder = tokio::spawn({
                        let locks = locks.clone();
                        async move {
                            let guard = locks.mutex("k").acquire().await.unwrap();
                            begun.send(()).unwrap();
                            sleep(Duration::from_millis(50)).await;
                            guard.release().await.unwrap();
                        }
                    });
                    has_begun.await.unwrap();
                    blocks(&locks).unwrap();
                    holder.await.unwrap();
                });
                blocked.await.unwrap();
            }
        });
    });
}

/// Blocks a runtime of two workers with more calls than it has workers, while a task of the same
/// runtime holds the key.
fn blocked_beside_their_holder(mut workers: runtime::Builder) {
    ends(move || {
        let locks = Locks::in_memory();
        let runtime = workers.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let holder = tokio::spawn(holds(locks.clone(), Duration::from_millis(300)));
            while !locks.status("k").await.unwrap().is_held() {
                tokio::task::yield_now().await;
            }
            let blocked: Vec<_> = (0..8)
                .map(|_| {
                    let locks = locks.clone();
                    tokio::spawn(async move { blocks(&locks) })
                })
                .collect();
            holder.await.unwrap().unwrap();
            for blocked in blocked {
                blocked.await.unwrap().unwrap();
            }
        });
    });
}

#[test]
fn h3_blocked_workers_hand_their_tasks_over() {
    blocked_beside_their_holder(runtime::Builder::new_multi_thread());
}

#[test]
fn workers_with_a_name_of_their_own_hand_their_tasks_over() {
    let mut workers = runtime::Builder::new_multi_thread();
    workers.thread_name("api");
    blocked_beside_their_holder(workers);
}

/// Tokio refuses to hand the tasks of a `LocalSet` over, whatever its thread is called.
#[test]
fn a_local_set_of_a_runtime_with_workers_may_be_blocked() {
    ends(|| {
        let locks = Locks::in_memory();
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let held = locks.mutex("k").blocking_acquire().unwrap();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(held);
        });
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            tokio::task::spawn_local(async move { blocks(&locks) }).await.unwrap().unwrap();
        });
    });
}
