//! Giving a lock back when it is not ours any more, when the server refuses it, and from places
//! where a guard is dropped at an odd place.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::Instant;

use redis_locks::{Guard, LockError, LossReason};
use testbed::{Child, ChildIo, Proxy, Server, cancel_at, cancel_in_flight, eventually, holds_for};
use tokio::time::sleep;

use crate::refusing::{
    demand_a_replica, demand_no_replica, demote, is_refused_for_want_of_replicas, promote,
};
use crate::support::*;

async fn b1_anothers_lock_is_left_alone() {
    let server = Server::start();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let late = locks.mutex(KEY).ttl(ms(300)).renew(false).acquire().await.unwrap();
    let theirs = job(&other).wait(PATIENCE).acquire().await.unwrap();
    let outcome = late.release().await;
    assert!(matches!(outcome, Err(LockError::Lost { .. })), "{outcome:?}");
    assert_eq!(server.get(WIRE), Some(theirs.token().to_string()));
    theirs.verify().await.unwrap();
    theirs.release().await.unwrap();
    server.assert_clean();
}

async fn b2_releasing_after_the_end_says_so() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(300)).renew(false).acquire().await.unwrap();
    eventually(PATIENCE, "the key has expired", || !server.exists(WIRE));
    match guard.release().await {
        Err(LockError::Lost { key, reason: LossReason::Expired, .. }) => assert_eq!(key, KEY),
        other => panic!("{other:?}"),
    }
    server.assert_clean();
}

async fn b3_a_release_dropped_at_any_await_goes_on() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    for delay in [0, 5, 50] {
        proxy.delay_up(ms(delay));
        for polls in 0..100 {
            let guard = job(&locks).acquire().await.unwrap();
            let late = cancel_at(polls, guard.release()).await;
            eventually(SOON, "dropped late, it is released", || !server.exists(WIRE));
            let guard = job(&locks).acquire().await.unwrap();
            let early = cancel_in_flight(polls, guard.release()).await;
            eventually(SOON, "dropped in flight, it is released", || !server.exists(WIRE));
            if let (Some(late), Some(early)) = (late, early) {
                late.and(early).unwrap();
                break;
            }
            assert!(polls < 99, "a release that never ends");
        }
    }
    server.assert_clean();
}

async fn b4_a_lost_reply_is_no_failure() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = connect(&proxy.url()).await;
    for round in 1..=5 {
        let guard = job(&locks).acquire().await.unwrap();
        proxy.cut_reply_to(WIRE);
        guard.release().await.unwrap();
        assert_eq!(proxy.cuts(), round, "the reply was lost");
        eventually(SOON, "it is released", || !server.exists(WIRE));
    }
    server.assert_clean();
}

async fn b5_a_server_that_is_down_gets_the_release_when_it_is_back() {
    let server = Server::builder().aof().start();
    let locks = connect(&server.url()).await;
    let guard = job(&locks).acquire().await.unwrap();
    server.kill9();
    let start = Instant::now();
    let outcome = guard.release().await;
    assert!(start.elapsed() < COMMAND + GRACE, "{:?}", start.elapsed());
    assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    sleep(ms(500)).await;
    server.restart();
    eventually(PATIENCE, "the key is gone", || !server.exists(WIRE));
    server.assert_clean();
}

#[test]
fn b6_a_guard_can_be_dropped_anywhere() {
    thread_local! { static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) }; }
    let server = Server::start();
    let locks = open(&server.url());
    let gone = || eventually(SOON, "it is released", || !server.exists(WIRE));

    let guard = job(&locks).blocking_acquire().unwrap();
    drop(guard);
    gone();

    // After its runtime is gone.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(job(&locks).acquire()).unwrap();
    drop(runtime);
    drop(guard);
    gone();

    // By a runtime that is shut down with the guard inside a task.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(job(&locks).acquire()).unwrap();
    runtime.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    drop(runtime);
    gone();

    // By a destructor of thread-local data.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = job(&locks).blocking_acquire().unwrap();
            KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
        });
    });
    gone();

    // While panicking.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = job(&locks).blocking_acquire().unwrap();
        panic!("the body fails, as planned");
    }));
    assert!(panicked.is_err());
    gone();
    server.assert_clean();
}

/// By thread-local data that is older than the data which a lock uses, so that it is dropped last,
/// while a waiter needs a fresh token.
#[test]
fn b6_a_guard_in_the_oldest_of_a_threads_locals_makes_way_for_a_waiter() {
    thread_local! { static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) }; }
    let server = Server::start();
    let locks = open(&server.url());
    let barriers = [Barrier::new(2), Barrier::new(2)];
    let (locks, [has_it, is_awaited]) = (&locks, &barriers);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            KEPT.with(|kept| assert!(kept.borrow().is_none()));
            let guard = job(locks).blocking_acquire().unwrap();
            KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
            has_it.wait();
            is_awaited.wait();
        });
        has_it.wait();
        // The lease is not the one that it asks for, so it is not passed on.
        let other = job(locks).ttl(LONG * 2).wait(PATIENCE);
        let waiting = scope.spawn(move || other.blocking_acquire().unwrap().blocking_release());
        eventually(SOON, "it waits", || !locks.blocking_status(KEY).unwrap().waiters.is_empty());
        is_awaited.wait();
        waiting.join().unwrap().unwrap();
    });
    server.assert_clean();
}

/// Takes the lock and ends the process as its parent says.
pub(crate) fn end(io: &mut ChildIo) {
    thread_local! { static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) }; }
    let locks = open(&std::env::var("REDIS_URL").unwrap());
    let guard = locks.mutex(KEY).ttl(ms(1000)).blocking_acquire().unwrap();
    io.say("holding");
    match io.hear().as_str() {
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        "thread-local" => KEPT.with(|kept| *kept.borrow_mut() = Some(guard)),
        other => panic!("what is {other:?}?"),
    }
}

#[test]
fn b6_a_guard_in_the_main_threads_locals_does_no_harm_at_exit() {
    let server = Server::start();
    let mut child = Child::spawn("release_end", &[("REDIS_URL", &server.url())]);
    child.expect("holding");
    child.tell("thread-local");
    assert!(child.wait().success());
    server.assert_clean();
}

#[test]
fn b7_a_process_that_ends_leaves_its_lock_for_the_ttl_only() {
    let server = Server::start();
    for how in ["exit", "abort"] {
        let mut child = Child::spawn("release_end", &[("REDIS_URL", &server.url())]);
        child.expect("holding");
        child.tell(how);
        child.wait();
        eventually(ms(1000) + GRACE, "the lock has expired", || !server.exists(WIRE));
    }
    server.assert_clean();
}

async fn b7_a_forgotten_guard_is_renewed_for_no_longer_than_max_hold() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let start = Instant::now();
    let guard = locks.mutex(KEY).ttl(ms(600)).max_hold(ms(2000)).acquire().await.unwrap();
    std::mem::forget(guard);
    holds_for(ms(1400), "it is renewed", || server.exists(WIRE));
    eventually(PATIENCE, "it ends", || !server.exists(WIRE));
    assert!(start.elapsed() < ms(2600) + GRACE, "{:?}", start.elapsed());
    holds_for(ms(500), "it stays away", || !server.exists(WIRE));
    server.assert_clean();
}

async fn b8_a_body_that_panics_releases() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let gone = || eventually(SOON, "it is released", || !server.exists(WIRE));

    let task = tokio::spawn({
        let locks = locks.clone();
        async move { job(&locks).run(async |_| panic!("the body fails, as planned")).await }
    });
    assert!(task.await.unwrap_err().is_panic());
    gone();

    let panicked = catch_unwind(AssertUnwindSafe(|| {
        job(&locks).blocking_run(|_| panic!("the body fails, as planned"))
    }));
    assert!(panicked.is_err());
    gone();
    server.assert_clean();
}

async fn b9_no_right_to_publish_is_no_obstacle() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~* resetchannels +@all -subscribe").start();
    let url = server.url().replace("redis://", "redis://app:secret@");
    let (locks, other) = (connect(&url).await, connect(&url).await);
    let guard = job(&locks).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { job(&other).wait(PATIENCE).acquire().await }
    });
    until_queued(&server).await;
    guard.release().await.unwrap();
    let start = Instant::now();
    let next = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < ms(3000), "{:?}: a poll finds it", start.elapsed());
    next.release().await.unwrap();
    assert!(!server.exists(WIRE));
    server.assert_clean();
}

/// The waiter could be notified and waits for a message; the releasing user may not publish.
async fn b9_a_waiter_without_messages_looks_at_intervals() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~* resetchannels +@all").start();
    let url = server.url().replace("redis://", "redis://app:secret@");
    let (mute, waiter) = (connect(&url).await, connect(&server.url()).await);
    for _ in 0..2 {
        let guard = job(&mute).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&waiter).wait(PATIENCE).acquire());
        until_queued(&server).await;
        guard.release().await.unwrap();
        let start = Instant::now();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(start.elapsed() < ms(3000), "{:?}: a poll finds it", start.elapsed());
    }
    server.assert_clean();
}

/// A lock is held, the server turns into one that refuses writes, and the lock is released.
async fn release_refused(
    server: &Server,
    break_it: impl FnOnce(),
    mend_it: impl FnOnce(),
    cause: &str,
) {
    let locks = connect(&server.url()).await;
    let guard = job(&locks).acquire().await.unwrap();
    break_it();
    let monitor = server.monitor();
    let start = Instant::now();
    let outcome = guard.release().await;
    assert!(start.elapsed() < COMMAND + GRACE, "{:?}", start.elapsed());
    assert_backend(outcome, cause);
    let is_renewed = || monitor.count("\"PEXPIRE\"") > 0;
    stays(WATCHED, "a lock that is being released is not renewed", || !is_renewed()).await;
    mend_it();
    eventually(PATIENCE, "the release is made up for", || !server.exists(WIRE));
    server.assert_clean();
}

async fn b10_a_release_refused_by_a_replica_is_made_up_for() {
    let server = Server::start();
    release_refused(&server, || demote(&server), || promote(&server), "READONLY").await;
}

async fn b10_a_release_refused_for_want_of_replicas_is_made_up_for() {
    if !is_refused_for_want_of_replicas() {
        testbed::skip!("needs a server that refuses scripts for want of replicas")
    }
    let server = Server::start();
    let (want, want_none) = (|| demand_a_replica(&server), || demand_no_replica(&server));
    release_refused(&server, want, want_none, "NOREPLICAS").await;
}

async fn b10_a_release_refused_for_a_failed_snapshot_is_made_up_for() {
    // Older servers protect no setting.
    let allowed = ["--enable-protected-configs", "yes"].into_iter().filter(|_| !is_before(7, 0));
    let server = Server::builder().arguments(allowed).start();
    let fail_snapshot = || {
        let vanishing = server.dir().join("vanishing");
        std::fs::create_dir(&vanishing).unwrap();
        server.run::<()>(&format!("CONFIG SET dir {}", vanishing.display()));
        std::fs::remove_dir(&vanishing).unwrap();
        let mut schedule = redis::cmd("CONFIG");
        server.query::<()>(schedule.arg("SET").arg("save").arg("3600 1")).unwrap();
        server.run::<redis::Value>("BGSAVE");
        eventually(PATIENCE, "the snapshot has failed", || {
            server.run::<String>("INFO persistence").contains("rdb_last_bgsave_status:err")
        });
    };
    let forgive = || server.run::<()>("CONFIG SET stop-writes-on-bgsave-error no");
    release_refused(&server, fail_snapshot, forgive, "MISCONF").await;
}

async fn b10_a_full_server_releases() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = job(&locks).acquire().await.unwrap();
    server.run::<()>("CONFIG SET maxmemory 1");
    guard.release().await.unwrap();
    assert!(!server.exists(WIRE));
    server.assert_clean();
}

async fn b12_a_release_after_the_loss_changes_nothing() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(600)).acquire().await.unwrap();
    server.run::<()>("SET lock:job somebody PX 60000");
    assert!(matches!(loss(&guard).await, LossReason::Overwritten { .. }));
    let outcome = guard.release().await;
    assert!(outcome.as_ref().is_err_and(LockError::is_lost), "{outcome:?}");

    let dropped = locks.mutex("other").ttl(ms(600)).acquire().await.unwrap();
    server.run::<()>("SET lock:other somebody PX 60000");
    loss(&dropped).await;
    drop(dropped);
    holds_for(ms(300), "the others' values stay", || {
        server.get(WIRE).as_deref() == Some("somebody")
            && server.get("lock:other").as_deref() == Some("somebody")
    });
    server.run::<()>("DEL lock:job lock:other");
    server.assert_clean();
}

async fn b13_a_failed_release_does_not_replace_what_the_body_returned() {
    let server = Server::builder().aof().start();
    let locks = connect(&server.url()).await;
    let body = async |_: &Guard| {
        server.kill9();
        Err::<(), _>("the body's own error")
    };
    let start = Instant::now();
    let outcome = job(&locks).run(body).await;
    assert!(start.elapsed() < COMMAND + GRACE, "{:?}", start.elapsed());
    assert_eq!(outcome.unwrap(), Err("the body's own error"));
    server.restart();
    eventually(PATIENCE, "the release is made up for", || !server.exists(WIRE));
    server.assert_clean();
}

each_way!(
    b1_anothers_lock_is_left_alone,
    b2_releasing_after_the_end_says_so,
    b3_a_release_dropped_at_any_await_goes_on,
    b4_a_lost_reply_is_no_failure,
    b5_a_server_that_is_down_gets_the_release_when_it_is_back,
    b7_a_forgotten_guard_is_renewed_for_no_longer_than_max_hold,
    b8_a_body_that_panics_releases,
    b9_no_right_to_publish_is_no_obstacle,
    b9_a_waiter_without_messages_looks_at_intervals,
    b10_a_release_refused_by_a_replica_is_made_up_for,
    b10_a_release_refused_for_want_of_replicas_is_made_up_for,
    b10_a_release_refused_for_a_failed_snapshot_is_made_up_for,
    b12_a_release_after_the_loss_changes_nothing,
    b13_a_failed_release_does_not_replace_what_the_body_returned,
);

// Without scripts, or a command of its own for it, a full server queues nothing for a transaction.
both_paths!(b10_a_full_server_releases);
