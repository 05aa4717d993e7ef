//! The fleet: each job once, and a late worker is refused.

#![allow(dead_code, reason = "the program has a main of its own")]

#[path = "../src/bin/queue.rs"]
mod queue;

use std::sync::{Arc, Barrier};
use std::thread;

use redis_locks::Locks;
use testbed::Server;

use queue::{Queue, work};

const JOBS: u32 = 60;

#[test]
fn each_job_is_done_once_whoever_does_it() {
    let server = Server::start();
    let table = server.dir().join("queue.db");
    Queue::open(&table, "mails").unwrap().fill(JOBS).unwrap();
    let begin = Arc::new(Barrier::new(3));
    let workers = ["ada", "grace", "edsger"].map(|name| {
        let (locks, table) = (Locks::open(server.url()).unwrap(), table.clone());
        let begin = Arc::clone(&begin);
        thread::spawn(move || {
            let mut queue = Queue::open(&table, "mails").unwrap();
            // Connects, so that no worker has done it all before the others are there.
            locks.blocking_status("queue:mails").unwrap();
            begin.wait();
            let done = work(&locks, &mut queue, name).unwrap();
            locks.blocking_shutdown();
            done
        })
    });
    let done: Vec<u32> = workers.map(|worker| worker.join().unwrap()).into();
    assert_eq!(done.iter().sum::<u32>(), JOBS, "{done:?}");
    assert!(done.iter().filter(|done| **done > 0).count() > 1, "one did it all: {done:?}");
    let queue = Queue::open(&table, "mails").unwrap();
    assert_eq!(queue.times().unwrap(), vec![1; JOBS as usize]);
    server.assert_clean();
}

#[test]
fn a_worker_that_wakes_up_late_is_refused() {
    let server = Server::start();
    let locks = Locks::open(server.url()).unwrap();
    let mut queue = Queue::open(&server.dir().join("queue.db"), "mails").unwrap();
    queue.fill(1).unwrap();
    let job = queue.next().unwrap().unwrap();
    let late = locks.mutex("queue:mails").fenced().blocking_acquire().unwrap();
    locks.blocking_force_release("queue:mails", "it seems to be frozen").unwrap();
    let next = locks.mutex("queue:mails").fenced().blocking_acquire().unwrap();
    assert!(queue.done(job, "next", next.fence().unwrap()).unwrap());
    assert!(!queue.done(job, "late", late.fence().unwrap()).unwrap());
    assert_eq!(queue.times().unwrap(), [1]);
    next.blocking_release().unwrap();
    drop(late);
    locks.blocking_shutdown();
    server.assert_clean();
}
