//! Servers that refuse, for all the reasons they have: what can be retried is retried within the
//! wait, what cannot is reported at once, and each cause is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use redis_locks::{LockError, LockState, Locks, LossReason};
use testbed::{Server, eventually, holds_for};

use crate::refusing::*;
use crate::support::*;

async fn e1_a_script_cache_that_is_flushed_all_the_time_is_invisible() {
    let server = Arc::new(Server::start());
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let ended = Arc::new(AtomicBool::new(false));
    let flusher = thread::spawn({
        let (server, ended) = (Arc::clone(&server), Arc::clone(&ended));
        move || {
            let mut flushed = 0;
            while !ended.load(Ordering::SeqCst) {
                server.run::<()>("SCRIPT FLUSH");
                flushed += 1;
            }
            flushed
        }
    });
    let tasks = managers.map(|locks| {
        tokio::spawn(async move {
            for _ in 0..100 {
                let guard = job(&locks).fenced().wait(PATIENCE).acquire().await.unwrap();
                guard.verify().await.unwrap();
                guard.extend(LONG).await.unwrap();
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    ended.store(true, Ordering::SeqCst);
    assert!(flusher.join().unwrap() > 200);
    server.assert_clean();
}

/// While the server is broken acquisitions fail with the cause, and waiters get the lock when it
/// works again.
async fn refused_then_mended(
    server: &Server,
    break_it: impl FnOnce(),
    mend_it: impl FnOnce(),
    cause: &str,
) {
    let locks = connect(&server.url()).await;
    break_it();
    let start = Instant::now();
    let outcome = job(&locks).wait(ms(300)).acquire().await;
    let took = start.elapsed();
    assert!(took < ms(300) + COMMAND + GRACE, "{took:?}");
    if let Err(LockError::Backend { source, .. }) = &outcome {
        assert!(source.is_retryable(), "{source}");
        assert!(took >= ms(200), "it was not retried: {took:?}");
    }
    assert_backend(outcome, cause);
    let start = Instant::now();
    assert_backend(job(&locks).try_acquire().await, cause);
    assert!(start.elapsed() < COMMAND + GRACE);

    let waiting = tokio::spawn(job(&locks).wait(PATIENCE).acquire());
    stays(WATCHED, "it goes on asking", || !waiting.is_finished()).await;
    mend_it();
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();
    server.assert_clean();
}

/// A full server still grants a free lock. It has no room to queue a waiter, which then looks by
/// itself, and gets `Busy` and not `Backend`.
async fn e2_a_full_server_refuses_new_locks_and_releases_held_ones() {
    let server = Server::start();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let request = |locks: &Locks, fenced| if fenced { job(locks).fenced() } else { job(locks) };
    for fenced in [false, true] {
        let guard = request(&locks, fenced).acquire().await.unwrap();
        server.run::<()>("CONFIG SET maxmemory 1");
        let outcome = request(&other, fenced).wait(ms(300)).acquire().await;
        assert!(outcome.as_ref().is_err_and(LockError::is_busy), "{outcome:?}");
        guard.release().await.unwrap();
        let refused = request(&other, fenced).wait(ms(300)).acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::Backend { .. }), "{refused:?}");
        assert!(full_text(&refused).contains("OOM"), "{refused}");
        let waiting = tokio::spawn(request(&other, fenced).wait(PATIENCE).acquire());
        stays(WATCHED, "not a byte more is taken", || !server.exists(WIRE)).await;
        server.run::<()>("CONFIG SET maxmemory 0");
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    server.assert_clean();
}

async fn e2_a_lock_is_kept_and_released_on_a_full_server() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex(KEY).ttl(ms(800)).acquire().await.unwrap();
    server.run::<()>("CONFIG SET maxmemory 1");
    holds_for(ms(2500), "it is renewed", || guard.state() == LockState::Held);
    guard.verify().await.unwrap();
    guard.extend(ms(3000)).await.unwrap();
    guard.release().await.unwrap();
    assert!(!server.exists(WIRE));
    server.assert_clean();
}

async fn e4_a_master_that_was_demoted() {
    let server = Server::start();
    refused_then_mended(&server, || demote(&server), || promote(&server), "READONLY").await;
}

async fn e4_too_few_replicas() {
    if !is_refused_for_want_of_replicas() {
        testbed::skip!("needs a server that refuses scripts for want of replicas")
    }
    let server = Server::start();
    let (want, want_none) = (|| demand_a_replica(&server), || demand_no_replica(&server));
    refused_then_mended(&server, want, want_none, "NOREPLICAS").await;
}

async fn e5_a_server_that_loads_its_data() {
    if is_before(7, 0) {
        testbed::skip!("needs a server that can load slowly")
    }
    let server = Server::builder()
        .aof()
        .arguments(["--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024"])
        .start();
    server.run::<()>("DEBUG POPULATE 10000 filler 10");
    server.run::<redis::Value>("BGREWRITEAOF");
    eventually(PATIENCE, "the data are written", || {
        let info: String = server.run("INFO persistence");
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    let locks = connect(&server.url()).await;
    server.restart_loading();
    let start = Instant::now();
    assert_backend(job(&locks).wait(ms(600)).acquire().await, "LOADING");
    assert!(start.elapsed() < ms(600) + COMMAND + GRACE, "{:?}", start.elapsed());
    let guard = job(&locks).wait(ms(30_000)).acquire().await.unwrap();
    guard.release().await.unwrap();
    let version = locks.status(KEY).await.unwrap().server.version;
    assert_ne!(version, "unknown version", "it was asked before it could tell what it can do");
    server.run::<()>("FLUSHALL");
    server.assert_clean();
}

/// A refusal that waiting can't change is returned at once, whatever the wait.
async fn refused_for_good(locks: &Locks, cause: &str) {
    let start = Instant::now();
    let outcome = job(locks).wait(PATIENCE).acquire().await;
    assert!(start.elapsed() < ms(2000), "{:?}", start.elapsed());
    if let Err(LockError::Backend { source, .. }) = &outcome {
        assert!(!source.is_retryable(), "{source}");
    }
    assert_backend(outcome, cause);
}

fn with_user(server: &Server, user: &str) -> String {
    server.url().replace("redis://", &format!("redis://{user}@"))
}

async fn e6_no_right_to_the_key() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~data:* &* +@all").start();
    let locks = open(&with_user(&server, "app:secret"));
    refused_for_good(&locks, "NOPERM").await;
    server.assert_clean();
}

async fn e6_no_right_to_the_commands() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~* &* +@connection +ping +info").start();
    let locks = open(&with_user(&server, "app:secret"));
    refused_for_good(&locks, "NOPERM").await;
    server.assert_clean();
}

async fn e6_a_wrong_password_and_none_at_all() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::start();
    server.run::<()>("CONFIG SET requirepass secret");
    refused_for_good(&open(&with_user(&server, ":wrong")), "authentication failed").await;
    refused_for_good(&open(&server.url()), "NOAUTH").await;
    let right = Locks::connect(with_user(&server, ":secret")).await.unwrap();
    job(&right).acquire().await.unwrap().release().await.unwrap();
    let mut unset = redis::cmd("CONFIG");
    server.query::<()>(unset.arg("SET").arg("requirepass").arg("")).unwrap();
    server.assert_clean();
}

async fn e6_no_channel_rights_at_all() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~* resetchannels +@all").start();
    let url = with_user(&server, "app:secret");
    let (locks, other) = (connect(&url).await, connect(&url).await);
    for _ in 0..3 {
        let guard = job(&locks).acquire().await.unwrap();
        let waiting = tokio::spawn(job(&other).wait(PATIENCE).acquire());
        until_queued(&server).await;
        guard.release().await.unwrap();
        let start = Instant::now();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(start.elapsed() < ms(3000), "{:?}: a poll finds it", start.elapsed());
    }
    server.assert_clean();
}

async fn e6_a_right_that_is_taken_while_the_lock_is_held() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user("app on >secret ~* &* +@all").start();
    let locks = connect(&with_user(&server, "app:secret")).await;
    // Given back in time, the lock is kept.
    let guard = locks.mutex(KEY).ttl(ms(2000)).acquire().await.unwrap();
    server.run::<()>("ACL SETUSER app resetkeys ~data:*");
    eventually(ms(1800), "a refused renewal shows", || guard.state() == LockState::Uncertain);
    server.run::<()>("ACL SETUSER app allkeys");
    eventually(ms(1500), "it is held again", || guard.state() == LockState::Held);
    // Not given back, it is lost at its end.
    server.run::<()>("ACL SETUSER app resetkeys ~data:*");
    assert_eq!(loss(&guard).await, LossReason::Expired);
    server.run::<()>("ACL SETUSER app allkeys");
    drop(guard);
    server.assert_clean();
}

async fn e7_a_server_busy_with_a_script() {
    let server = Server::start();
    let (busy, killed) = (|| endless_script(&server), || kill_script(&server));
    refused_then_mended(&server, busy, killed, "BUSY").await;
}

async fn e9_no_room_for_another_client() {
    let server = Server::start();
    let locks = open(&server.url());
    server.run::<()>("CONFIG SET maxclients 1");
    // The server says why and closes the connection. If we have sent something meanwhile, the
    // system often reports a reset connection instead of the reason.
    assert_backend(job(&locks).wait(ms(300)).acquire().await, "");
    let waiting = tokio::spawn(job(&locks).wait(PATIENCE).acquire());
    stays(WATCHED, "it goes on asking", || !waiting.is_finished()).await;
    server.run::<()>("CONFIG SET maxclients 100");
    waiting.await.unwrap().unwrap().release().await.unwrap();
    server.assert_clean();
}

both_paths!(
    e2_a_full_server_refuses_new_locks_and_releases_held_ones,
    e2_a_lock_is_kept_and_released_on_a_full_server,
    e4_a_master_that_was_demoted,
    e4_too_few_replicas,
    e5_a_server_that_loads_its_data,
    e6_no_right_to_the_key,
    e6_no_right_to_the_commands,
    e6_a_wrong_password_and_none_at_all,
    e6_no_channel_rights_at_all,
    e6_a_right_that_is_taken_while_the_lock_is_held,
    e7_a_server_busy_with_a_script,
    e9_no_room_for_another_client,
);

both_paths!(on 2 threads:
    e1_a_script_cache_that_is_flushed_all_the_time_is_invisible,
);
