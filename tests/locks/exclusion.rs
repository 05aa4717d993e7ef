//! One at a time: between tasks, threads, managers and processes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use std::{env, thread};

use redis_locks::Locks;
use testbed::{Child, ChildIo, Server, ServerBinary, SharedCounter};

use crate::support::*;

const PROCESSES: u64 = 8;
const TASKS: u64 = 8;
const ROUNDS: u64 = 200;

/// Adds to the counter in the file, from several tasks, each time under the lock.
pub(crate) fn count(io: &mut ChildIo) {
    let locks = Locks::open(env::var("REDIS_URL").unwrap()).unwrap();
    let counter = SharedCounter::open(Path::new(&env::var("COUNTER").unwrap()));
    io.say("ready");
    io.hear();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let tasks = (0..TASKS).map(|_| {
                let (locks, counter) = (locks.clone(), counter.clone());
                tokio::spawn(async move {
                    for _ in 0..ROUNDS {
                        let guard = job(&locks).acquire().await.unwrap();
                        counter.add_one(|| {}).unwrap();
                        guard.release().await.unwrap();
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        });
    io.say("done");
    io.hear();
}

fn no_update_is_lost(server: &Server) {
    let counter = SharedCounter::create(&server.dir().join("counter")).unwrap();
    let path = counter.path().to_str().unwrap();
    let url = server.url();
    let variables = [("REDIS_URL", url.as_str()), ("COUNTER", path)];
    let mut children: Vec<Child> =
        (0..PROCESSES).map(|_| Child::spawn("exclusion_count", &variables)).collect();
    for child in &mut children {
        child.expect("ready");
    }
    let start = Instant::now();
    for child in &mut children {
        child.tell("go");
    }
    for child in &mut children {
        child.expect_within(ms(120_000), "done");
    }
    println!("{} updates in {:?}", PROCESSES * TASKS * ROUNDS, start.elapsed());
    assert_eq!(counter.read().unwrap(), PROCESSES * TASKS * ROUNDS);
    for child in &mut children {
        child.tell("end");
        child.wait();
    }
    server.assert_clean();
}

#[test]
fn processes_and_their_tasks_lose_no_update() {
    no_update_is_lost(&Server::start());
}

#[test]
fn processes_and_their_tasks_lose_no_update_on_valkey() {
    let Some(valkey) = ServerBinary::valkey(9) else { testbed::skip!("no Valkey 9 to be had") };
    no_update_is_lost(&Server::builder().binary(valkey).start());
}

/// Whether a holder is inside, and whether there ever were two at once.
#[derive(Default)]
struct Room {
    occupied: AtomicBool,
}

impl Room {
    fn enter(&self) {
        assert!(!self.occupied.swap(true, Ordering::SeqCst), "two are inside");
        thread::yield_now();
        assert!(self.occupied.swap(false, Ordering::SeqCst));
    }
}

#[test]
fn threads_and_managers_exclude_each_other() {
    let server = Server::start();
    let room = Arc::new(Room::default());
    let threads: Vec<_> = (0..4)
        .flat_map(|_| {
            let locks = open(&server.url());
            [locks.clone(), locks]
        })
        .map(|locks| {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                for _ in 0..100 {
                    job(&locks).blocking_run(|_| room.enter()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    server.assert_clean();
}

#[tokio::test]
async fn different_keys_do_not_wait_for_each_other() {
    let server = Server::start();
    let locks = connect(&server.url()).await;
    let held = job(&locks).acquire().await.unwrap();
    let waiting = started(job(&locks).wait(PATIENCE).acquire()).await;
    let start = Instant::now();
    for number in 0..20 {
        let guard = locks.mutex(format!("other{number}")).ttl(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert!(start.elapsed() < HANGS, "{:?}", start.elapsed());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    server.assert_clean();
}
