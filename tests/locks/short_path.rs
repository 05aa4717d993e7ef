//! A task of a busy runtime with several threads reads in place of the engine, which must change
//! only the speed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis_locks::Locks;
use testbed::{PATIENCE, Proxy, Server, cancel_at, eventually};
use tokio::runtime::{Builder, Runtime};

use crate::support::GRACE;

/// How long one command may take where the manager sets nothing else.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn connections(server: &Server) -> usize {
    ids(server).len()
}

/// The connections by their numbers: the last was made last.
fn ids(server: &Server) -> BTreeSet<u64> {
    let mut connection = server.client().get_connection().unwrap();
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
    // The connections of the test itself are newer, and show the command that they sent.
    let locks = list.lines().filter(|line| !line.contains("cmd=client"));
    let id = |line: &str| line.split_once("id=")?.1.split(' ').next()?.parse().ok();
    locks.map(|line| id(line).unwrap()).collect()
}

/// The connection by which the last release went.
fn commands_go_by(server: &Server) -> u64 {
    let mut connection = server.client().get_connection().unwrap();
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
    let released = |line: &&str| ["evalsha", "delifeq"].iter().any(|cmd| line.contains(cmd));
    let line = list.lines().find(released).unwrap();
    line.split_once("id=").unwrap().1.split(' ').next().unwrap().parse().unwrap()
}

async fn pairs(locks: &Locks, count: usize) {
    for _ in 0..count {
        let guard = locks.mutex("warm").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

/// Whether no lock is left; a token whose outcome was unknown leaves a tombstone for its lease.
fn all_given_back(server: &Server) -> bool {
    server.keys().iter().all(|key| key.contains(":~x:"))
}

/// Works in tasks of the runtime until one of them reads; returns what it is connected with.
fn on_short_path(runtime: &Runtime, server: &Server, url: &str) -> Locks {
    let before = connections(server);
    let locks = Locks::open(url).unwrap();
    let warming = locks.clone();
    runtime
        .block_on(async { tokio::spawn(async move { pairs(&warming, 300).await }).await })
        .unwrap();
    eventually(PATIENCE, "commands and messages", || connections(server) == before + 2);
    let warming = locks.clone();
    runtime
        .block_on(async { tokio::spawn(async move { pairs(&warming, 50).await }).await })
        .unwrap();
    locks
}

#[test]
fn a_runtime_with_one_thread_has_as_many_connections() {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let before = connections(&server);
    let locks = Locks::open(server.url()).unwrap();
    runtime.block_on(pairs(&locks, 300));
    eventually(PATIENCE, "commands and messages", || connections(&server) == before + 2);
    locks.blocking_shutdown();
    server.assert_clean();
}

#[test]
fn tasks_that_read_exclude_threads_and_other_managers() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    let (inside, runs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let enter = |inside: &AtomicU64, runs: &AtomicU64| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
        runs.fetch_add(1, Ordering::SeqCst);
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (locks, inside, runs) = (locks.clone(), Arc::clone(&inside), Arc::clone(&runs));
            runtime.spawn(async move {
                for _ in 0..100 {
                    let guard = locks.mutex("k").acquire().await.unwrap();
                    enter(&inside, &runs);
                    drop(guard);
                }
            })
        })
        .collect();
    let threads: Vec<_> = [locks.clone(), Locks::open(server.url()).unwrap()]
        .into_iter()
        .map(|locks| {
            let (inside, runs) = (Arc::clone(&inside), Arc::clone(&runs));
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let guard = locks.mutex("k").blocking_acquire().unwrap();
                    enter(&inside, &runs);
                    drop(guard);
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1_000);
    eventually(PATIENCE, "all is given back", || all_given_back(&server));
    server.assert_clean();
}

#[test]
fn every_kind_of_lock_works_where_a_task_reads() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    let taken = async move {
        for number in 0..50 {
            let requests = [
                locks.mutex("mutex"),
                locks.read("catalog"),
                locks.read("catalog"),
                locks.permit("pool", 2),
                locks.all(["one", "two"]),
                locks.mutex("fenced").fenced(),
            ];
            let mut guards = Vec::new();
            for request in requests {
                guards.push(request.no_wait().acquire().await.unwrap());
            }
            for (index, guard) in guards.into_iter().enumerate() {
                if (number + index) % 3 == 0 {
                    guard.release_in_background();
                } else {
                    guard.release().await.unwrap();
                }
            }
            locks.write("catalog").acquire().await.unwrap().release().await.unwrap();
        }
        locks
    };
    let standing = connections(&server);
    let locks = runtime.block_on(async { tokio::spawn(taken).await }).unwrap();
    assert_eq!(connections(&server), standing, "no kind of lock needs another connection");
    locks.blocking_shutdown();
    server.assert_clean();
}

#[test]
fn a_lock_released_in_the_background_is_free_for_the_next_call() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    for round in 0..200 {
        let fenced = round % 2 == 0;
        let request = |key: &str| {
            let request = locks.mutex(key).no_wait();
            if fenced { request.fenced() } else { request }
        };
        let in_task = request("k");
        let released = async move { in_task.acquire().await.unwrap().release_in_background() };
        runtime.block_on(async { tokio::spawn(released).await }).unwrap();
        let guard = request("k").blocking_try_acquire().unwrap();
        assert!(guard.is_some(), "round {round}: busy with what this process has released");
    }
    locks.blocking_shutdown();
    server.assert_clean();
}

#[test]
fn a_lease_that_a_task_read_of_is_renewed() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    for ttl in [400, 4_500] {
        let (locks, ttl) = (locks.clone(), Duration::from_millis(ttl));
        let task = async move { locks.mutex("renewed").ttl(ttl).acquire().await.unwrap() };
        let guard = runtime.block_on(async { tokio::spawn(task).await }).unwrap();
        let most = i64::try_from(ttl.as_millis()).unwrap() * 9 / 10;
        let renewed = || server.pttl("lock:renewed").is_some_and(|left| left > most);
        eventually(PATIENCE, "the first lease runs down", || !renewed());
        eventually(PATIENCE, "it is renewed", renewed);
        assert!(guard.is_held());
    }
    eventually(PATIENCE, "all is given back", || all_given_back(&server));
    server.assert_clean();
}

#[test]
fn a_release_does_not_wait_for_workers_that_are_all_blocked() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    let taking = locks.clone();
    let task = async move { taking.mutex("stuck").acquire().await.unwrap() };
    let guard = runtime.block_on(async { tokio::spawn(task).await }).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let stopped = Arc::new(std::sync::Mutex::new(stopped));
    let mut guard = Some(guard);
    for _ in 0..2 {
        let (stopped, guard) = (Arc::clone(&stopped), guard.take());
        runtime.spawn(async move {
            drop(guard);
            // Blocks the worker on purpose, until the test has seen what it wants to see.
            let _ = stopped.lock().unwrap().recv_timeout(PATIENCE * 2);
        });
    }
    eventually(PATIENCE, "the lock is free", || !server.exists("lock:stuck"));
    drop(stop);
    server.assert_clean();
}

#[test]
fn a_runtime_that_ends_takes_no_release_with_it() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    for number in 0..50 {
        let locks = locks.clone();
        runtime.spawn(async move {
            let guard = locks.mutex(format!("k{number}")).acquire().await.unwrap();
            tokio::task::yield_now().await;
            drop(guard);
            std::future::pending::<()>().await;
        });
    }
    runtime.shutdown_background();
    eventually(PATIENCE, "all is given back", || all_given_back(&server));
    let guard = locks.mutex("after").blocking_acquire().unwrap();
    guard.blocking_release().unwrap();
    server.assert_clean();
}

#[test]
fn a_connection_that_breaks_under_load_costs_nobody_a_lock() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let locks = locks.clone();
            runtime.spawn(async move {
                for _ in 0..200 {
                    let guard = locks.mutex(format!("k{number}")).acquire().await.unwrap();
                    // A release whose answer is cut off is tried again before a caller hears of it.
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    let mut connection = server.client().get_connection().unwrap();
    while !tasks.iter().all(|task| task.is_finished()) {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
        for line in list.lines().filter(|line| {
            ["set", "evalsha"].iter().any(|cmd| line.contains(&format!("cmd={cmd} ")))
        }) {
            let id = line.split_once("id=").and_then(|(_, rest)| rest.split(' ').next()).unwrap();
            // It may have gone meanwhile.
            let _: Result<i64, _> =
                redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).query(&mut connection);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    eventually(PATIENCE, "all is given back", || all_given_back(&server));
    server.assert_clean();
}

#[test]
fn a_connection_to_a_server_that_became_a_replica_is_given_up() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    let first = commands_go_by(&server);
    server.run::<()>("REPLICAOF 127.0.0.1 1");
    let request = locks.mutex("k").wait(Duration::from_millis(500));
    let refused = runtime.block_on(async { tokio::spawn(request.acquire()).await }).unwrap();
    assert!(refused.is_err(), "a replica grants nothing");
    // A connection to somewhere else is made when a caller has work for it again.
    eventually(PATIENCE, "it is closed", || !ids(&server).contains(&first));
    server.run::<()>("REPLICAOF NO ONE");
    let again = locks.mutex("k").wait(PATIENCE);
    let guard = runtime.block_on(async { tokio::spawn(again.acquire()).await }).unwrap().unwrap();
    guard.blocking_release().unwrap();
    locks.blocking_shutdown();
    server.assert_clean();
}

#[test]
fn a_frozen_server_is_an_error_within_one_command_timeout() {
    let server = Server::start();
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &server.url());
    server.freeze();
    let taking = locks.clone();
    let task = async move { taking.mutex("frozen").no_wait().acquire().await };
    let started = std::time::Instant::now();
    let error = runtime.block_on(async { tokio::spawn(task).await }).unwrap().unwrap_err();
    assert!(matches!(error, redis_locks::LockError::Backend { .. }), "{error}");
    assert!(started.elapsed() < COMMAND_TIMEOUT + GRACE, "{:?}", started.elapsed());
    server.thaw();
    eventually(PATIENCE, "what was sent leaves nothing", || all_given_back(&server));
    server.assert_clean();
}

#[test]
fn a_dropped_acquisition_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let runtime = two_workers();
    let locks = on_short_path(&runtime, &server, &proxy.url());
    for delay in [0, 5, 50] {
        proxy.delay_up(Duration::from_millis(delay));
        for polls in 0..4 {
            let locks = locks.clone();
            let task = async move { cancel_at(polls, locks.mutex("dropped").acquire()).await };
            drop(runtime.block_on(async { tokio::spawn(task).await }));
            eventually(PATIENCE, "nothing is left", || all_given_back(&server));
        }
    }
    server.assert_clean();
}
