//! Releases that come one at a time where there are no scripts, while something else happens at the
//! server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis_locks::{Locks, Scripting};
use testbed::{Proxy, Server};
use tokio::task::JoinSet;

use crate::support::*;
use crate::without_scripts::{NO_SCRIPTS, as_user, never};

async fn pair(locks: &Locks) {
    job(locks).acquire().await.unwrap().release().await.unwrap();
}

/// Locks without scripts that have connections for transactions.
async fn warm(url: &str) -> Locks {
    let builder = Locks::builder().url(url).scripting(Scripting::Never).command_timeout(COMMAND);
    let locks = builder.connect().await.unwrap();
    for _ in 0..10 {
        pair(&locks).await;
    }
    locks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_wait_out_a_pause_of_the_server() {
    let server = Server::start();
    let locks = warm(&server.url()).await;
    // Where only what writes is paused, the lock has been read by then. Older servers pause everything.
    let sorts: &[&str] = if is_before(6, 2) { &[""] } else { &["ALL", "WRITE"] };
    for what in sorts {
        for pause in [COMMAND / 5, COMMAND * 3] {
            let guard = job(&locks).acquire().await.unwrap();
            server.run::<()>(&format!("CLIENT PAUSE {} {what}", pause.as_millis()));
            let outcome = guard.release().await;
            if pause < COMMAND {
                outcome.unwrap();
            } else {
                // One command goes with all others, whose connection counts as dead then.
                let one_command = compares_by_itself(&server);
                assert_backend(outcome, if one_command { "nothing came" } else { "in time" });
            }
            // No client can look during a pause, and the release goes on after it.
            until("it is free", || !server.exists(WIRE)).await;
            let other = never(&server).await;
            job(&other).acquire().await.unwrap().release().await.unwrap();
            pair(&locks).await;
        }
    }
    server.assert_clean();
}

/// Closes all connections of a user that have executed a transaction.
fn close_those_of_transactions(server: &Server, user: &str) -> usize {
    let list: String = server.run("CLIENT LIST TYPE normal");
    // Which field is the last depends on the version.
    let wanted = [format!("user={user}"), "cmd=exec".to_owned()];
    let is_one = |line: &&str| wanted.iter().all(|it| line.split(' ').any(|field| field == it));
    let closed = list.lines().filter(is_one).map(|line| {
        let id = line.split(['=', ' ']).nth(1).unwrap();
        server.run::<u64>(&format!("CLIENT KILL ID {id}"))
    });
    closed.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_go_on_when_the_password_changes_and_stop_where_it_is_asked_for() {
    if is_before(6, 0) {
        testbed::skip!("needs a server with users")
    }
    let server = Server::builder().user(NO_SCRIPTS).start();
    let locks = warm(&as_user(&server, "app")).await;
    server.run::<()>("ACL SETUSER app resetpass >changed");
    for _ in 0..20 {
        // What is connected already needs no password.
        pair(&locks).await;
    }
    let guard = locks.mutex(KEY).ttl(ms(1_500)).acquire().await.unwrap();
    assert!(close_those_of_transactions(&server, "app") > 0);
    let outcome = guard.release().await;
    if compares_by_itself(&server) {
        // It needs no connection of its own.
        outcome.unwrap();
    } else {
        let said = full_text(&outcome.unwrap_err());
        assert!(said.contains("password") || said.contains("WRONGPASS"), "{said}");
    }
    until("its lease has ended", || !server.exists(WIRE)).await;
    server.run::<()>("ACL SETUSER app resetpass >secret");
    let works = async {
        while locks.mutex(KEY).ttl(ms(1_500)).acquire().await.is_err() {
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, works).await.expect("it works again");
    for _ in 0..50 {
        pair(&locks).await;
    }
    until("nothing is left", || !server.exists(WIRE)).await;
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_leaves_none_of_them() {
    const LATENCY: Duration = ms(4);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    for step in 0..12 {
        proxy.pass();
        let locks = warm(&proxy.url()).await;
        let guard = job(&locks).acquire().await.unwrap();
        proxy.delay_up(LATENCY);
        guard.release_in_background();
        // Before it is sent, within its two round trips, and after them.
        tokio::time::sleep(LATENCY / 4 * step).await;
        locks.shutdown().await;
        assert!(!server.exists(WIRE), "step {step}");
    }
    server.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eighty_waiters_are_served_after_the_server_has_lost_its_data() {
    const MANAGERS: usize = 8;
    const TASKS: usize = 10;
    let server = Server::start();
    let mut managers = Vec::new();
    for _ in 0..MANAGERS {
        managers.push(warm(&server.url()).await);
    }
    let held = job(&never(&server).await).acquire().await.unwrap();
    let (inside, mut waiting) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for locks in &managers {
        for _ in 0..TASKS {
            let (request, inside) = (job(locks).wait(PATIENCE).acquire(), Arc::clone(&inside));
            waiting.spawn(async move {
                let guard = request.await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                tokio::task::yield_now().await;
                assert!(inside.swap(false, Ordering::SeqCst));
                guard.release().await.unwrap();
            });
        }
    }
    let queue = format!("ZCARD {QUEUE}");
    until("each manager has queued", || server.run::<usize>(&queue) == MANAGERS).await;
    server.kill9();
    server.restart();
    // Its lock was lost with all else.
    drop(held);
    while let Some(served) = waiting.join_next().await {
        served.unwrap();
    }
    until("nothing is left", || !server.exists(WIRE)).await;
    server.assert_clean();
}
