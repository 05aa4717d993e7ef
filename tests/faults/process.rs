//! Processes that are killed or asked to end, and runtimes that start, end and misbehave.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{LockError, Locks, redis_lock};
use testbed::{Child, ChildIo, Server, eventually, holds_for};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::support::*;

/// Holds ten locks until it is killed or asked to end; then it shuts down in good order.
pub(crate) fn hold(io: &mut ChildIo) {
    let locks = open(&std::env::var("REDIS_URL").unwrap());
    Runtime::new().unwrap().block_on(async {
        let mut ended =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        let mut guards = Vec::new();
        for number in 0..10 {
            guards
                .push(locks.mutex(format!("{KEY}{number}")).ttl(ms(3000)).acquire().await.unwrap());
        }
        io.say("holding");
        ended.recv().await;
        drop(guards);
        locks.shutdown().await;
        io.say("shut down");
        let after = locks.mutex(KEY).acquire().await;
        io.say(&format!("then {}", matches!(after, Err(LockError::Shutdown))));
    });
}

async fn j1_a_killed_holder_blocks_others_for_its_ttl_at_most() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let mut child = Child::spawn("process_hold", &[("REDIS_URL", &server.url())]);
    child.expect("holding");
    child.kill9();
    let start = Instant::now();
    let guard = locks.mutex("job0").ttl(LONG).wait(PATIENCE).acquire().await.unwrap();
    assert!(start.elapsed() < ms(3000 + 50) + GRACE, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    eventually(GRACE, "the others have expired as well", || server.keys().is_empty());
    server.assert_clean();
}

#[test]
fn j2_a_process_that_is_asked_to_end_leaves_nothing() {
    let server = Server::start();
    let mut child = Child::spawn("process_hold", &[("REDIS_URL", &server.url())]);
    child.expect("holding");
    assert_eq!(server.keys().len(), 10);
    child.terminate();
    child.expect("shut down");
    assert_eq!(server.keys(), Vec::<String>::new());
    assert_eq!(child.expect("then"), "true");
    assert!(child.wait().success());
    server.assert_clean();
}

/// Ends right after its guard was dropped, without a shutdown.
pub(crate) fn drop_and_end(_: &mut ChildIo) {
    let locks = open(&std::env::var("REDIS_URL").unwrap());
    let taken = Runtime::new().unwrap().block_on(job(&locks).ttl(ms(600_000)).acquire());
    drop(taken.unwrap());
    std::process::exit(0);
}

#[test]
fn j2_a_program_whose_last_act_is_a_drop_leaves_nothing() {
    let server = Server::start();
    for _ in 0..5 {
        let mut child = Child::spawn("process_drop", &[("REDIS_URL", &server.url())]);
        assert!(child.wait().success());
        eventually(PATIENCE, "the release was sent", || !server.exists(WIRE));
    }
    server.assert_clean();
}

async fn j2_shutting_down_can_be_repeated() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = job(&locks).acquire().await.unwrap();
    drop(guard);
    locks.shutdown().await;
    assert!(!server.exists(WIRE), "the release was flushed");
    locks.shutdown().await;
    assert!(matches!(job(&locks).acquire().await, Err(LockError::Shutdown)));
    server.assert_clean();
}

#[test]
fn j3_guards_outlive_the_runtime_that_made_them() {
    let server = Server::start();
    let runtime = Runtime::new().unwrap();
    let (locks, guard) = runtime.block_on(async {
        let locks = connect(&server.url()).await;
        let guard = locks.mutex(KEY).ttl(ms(1500)).acquire().await.unwrap();
        (locks, guard)
    });
    runtime.shutdown_background();
    holds_for(ms(2500), "it is renewed", || guard.is_held() && server.exists(WIRE));
    drop(guard);
    // Sooner than the lease would end by itself.
    eventually(ms(900), "it is released", || !server.exists(WIRE));
    drop(locks);
    server.assert_clean();
}

#[test]
fn j3_releases_of_a_dropped_runtime_arrive_though_the_manager_goes_too() {
    let server = Server::start();
    let runtime = Runtime::new().unwrap();
    runtime.spawn({
        let url = server.url();
        async move {
            let locks = connect(&url).await;
            let _guard = job(&locks).acquire().await.unwrap();
            std::future::pending::<()>().await;
        }
    });
    eventually(PATIENCE, "the lock is taken", || server.exists(WIRE));
    runtime.shutdown_background();
    eventually(SOON, "it is released", || !server.exists(WIRE));
    server.assert_clean();
}

#[test]
fn j4_a_manager_works_in_runtimes_it_was_not_made_in() {
    let server = Server::start();
    let locks = Runtime::new().unwrap().block_on(connect(&server.url()));
    // The runtime it was made in is gone; now another kind, and none.
    let single = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..3 {
        let guard = single.block_on(job(&locks).acquire()).unwrap();
        Runtime::new().unwrap().block_on(guard.release()).unwrap();
        let guard = job(&locks).blocking_acquire().unwrap();
        single.block_on(guard.verify()).unwrap();
        guard.blocking_release().unwrap();
    }
    server.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn j5_a_paused_clock_in_the_callers_runtime_does_not_matter() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let other = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(600)).acquire().await.unwrap();
    // An hour passes at once by the runtime's paused clock, and no time by the engine's.
    tokio::time::advance(Duration::from_secs(3600)).await;
    sleep(Duration::from_secs(3600)).await;
    assert!(guard.is_held());
    let start = Instant::now();
    let outcome = job(&other).wait(ms(300)).acquire().await;
    assert!(outcome.is_err_and(|error| error.is_busy()));
    assert!(start.elapsed() >= ms(300), "{:?}", start.elapsed());
    guard.release().await.unwrap();
    server.assert_clean();
}

/// The manager that the annotated functions below use.
static LOCKS: OnceLock<Locks> = OnceLock::new();

fn locks() -> &'static Locks {
    LOCKS.get().expect("the test has set it")
}

#[redis_lock(key = "sync:{who}", ttl = "5s", wait = "5s", via = locks())]
fn locked_sync(server: &Server, who: &str) -> Result<bool, LockError> {
    thread::sleep(ms(20));
    Ok(server.exists(&format!("lock:sync:{who}")))
}

#[redis_lock(key = "async:{who}", ttl = "5s", wait = "5s", via = locks())]
async fn locked_async(server: &Server, who: &str) -> Result<bool, LockError> {
    // A synchronous one inside: it blocks this thread, and the locks go on.
    Ok(locked_sync(server, who)? && server.exists(&format!("lock:async:{who}")))
}

#[test]
fn j6_synchronous_functions_lock_from_anywhere() {
    let server: &'static Server = Box::leak(Box::new(Server::start()));
    LOCKS.set(open(&server.url())).expect("only this test sets it");
    assert!(locked_sync(server, "plain-thread").unwrap());
    for runtime in [
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        Runtime::new().unwrap(),
    ] {
        runtime.block_on(async {
            assert!(locked_sync(server, "async-context").unwrap());
            assert!(locked_async(server, "async-function").await.unwrap());
            let pool = tokio::task::spawn_blocking(|| locked_sync(server, "pool").unwrap());
            assert!(pool.await.unwrap());
            let tasks = [(); 4]
                .map(|()| tokio::spawn(async { locked_async(server, "contended").await.unwrap() }));
            for task in tasks {
                assert!(task.await.unwrap());
            }
        });
    }
    server.assert_clean();
    // The static is never dropped, so nothing else stops the server.
    server.kill9();
}

both_paths!(j1_a_killed_holder_blocks_others_for_its_ttl_at_most, j2_shutting_down_can_be_repeated,);
