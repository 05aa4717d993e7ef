//! Many requests with few keys, to two processes: each handler runs once for each key, and again only where a fault
//! explains it.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::Path as InPath;
use axum::routing::post;
use redis_locks::Locks;
use redis_locks_tower::{IdempotencyLayer, Scope};
use testbed::{Child, ChildIo, Server};
use tokio::time::sleep;

use crate::client::{Sent, serve};

/// How many requests have one key.
const EACH: usize = 10;

/// How long the answer of a handler is on its way to the lock server at most, in microseconds.
const STORING: u128 = 2_500_000;

/// How many clients send at the same time.
const CLIENTS: usize = 24;

fn now() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros()
}

/// One line of a process's log: what, which key, when.
fn note(log: &str, what: &str, key: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(log).unwrap();
    writeln!(file, "{what} {key} {}", now()).unwrap();
}

/// Notes the end of a handler, also when it is dropped because its lock was lost.
struct End {
    log: &'static str,
    key: String,
}

impl Drop for End {
    fn drop(&mut self) {
        note(self.log, "end", &self.key);
    }
}

/// A process that takes payments, until it is killed.
pub(crate) fn serve_payments(io: &mut ChildIo) {
    let log: &'static str = std::env::var("LOG").unwrap().leak();
    let locks = Locks::builder().url(std::env::var("REDIS_URL").unwrap());
    let locks = locks.ttl(Duration::from_secs(2)).open().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let pay = async move |InPath(key): InPath<String>| {
        note(log, "start", &key);
        let _end = End { log, key };
        sleep(Duration::from_millis(5)).await;
        format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::SeqCst))
    };
    let layer = IdempotencyLayer::new(locks).scope(Scope::everyone());
    let app = Router::new().route("/pay/{key}", post(pay)).layer(layer);
    let to = runtime.block_on(serve(app));
    io.say(&format!("port {}", to.port()));
    io.hear();
}

/// Two processes that can be killed, and what they wrote down.
struct Fleet {
    url: String,
    logs: tempfile::TempDir,
    children: Mutex<Vec<(Child, PathBuf)>>,
    addresses: Mutex<Vec<SocketAddr>>,
    /// The logs of killed processes, and when they were killed.
    killed: Mutex<HashMap<PathBuf, u128>>,
}

impl Fleet {
    fn start(server: &Server) -> Self {
        let (url, logs) = (server.url(), tempfile::tempdir().unwrap());
        let empty = (Mutex::default(), Mutex::default(), Mutex::default());
        let this = Self { url, logs, children: empty.0, addresses: empty.1, killed: empty.2 };
        (0..2).for_each(|_| this.add());
        this
    }

    fn add(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let log = self.logs.path().join(NEXT.fetch_add(1, Ordering::SeqCst).to_string());
        let variables = [("REDIS_URL", &*self.url), ("LOG", log.to_str().unwrap())];
        let mut child = Child::spawn("serve", &variables);
        let port: u16 = child.expect("port").parse().unwrap();
        self.addresses.lock().unwrap().push(([127, 0, 0, 1], port).into());
        self.children.lock().unwrap().push((child, log));
    }

    /// Kills the older process, and starts another.
    fn replace(&self) {
        let (mut child, log) = self.children.lock().unwrap().remove(0);
        child.kill9();
        self.killed.lock().unwrap().insert(log, now());
        self.addresses.lock().unwrap().remove(0);
        self.add();
    }

    fn address(&self, number: usize) -> Option<SocketAddr> {
        let addresses = self.addresses.lock().unwrap();
        addresses.get(number % addresses.len().max(1)).copied()
    }

    /// All runs of handlers, by key.
    fn runs(&self) -> HashMap<String, Vec<Run>> {
        let mut runs: HashMap<String, Vec<Run>> = HashMap::new();
        for entry in fs::read_dir(self.logs.path()).unwrap() {
            let path = entry.unwrap().path();
            let killed = self.killed.lock().unwrap().get(&path).copied();
            for run in read_log(&path, killed) {
                runs.entry(run.0).or_default().push(run.1);
            }
        }
        runs.values_mut().for_each(|runs| runs.sort_by_key(|run| run.from));
        runs
    }
}

#[derive(Debug)]
struct Run {
    from: u128,
    to: u128,
    /// When its process was killed, if it was.
    killed: Option<u128>,
}

fn read_log(path: &Path, killed: Option<u128>) -> Vec<(String, Run)> {
    let mut runs: Vec<(String, Run)> = Vec::new();
    let mut open: HashMap<String, usize> = HashMap::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // A process may be killed within a line.
        let [what, key, at] = words[..] else { continue };
        let at = at.parse().unwrap_or_default();
        if what == "start" {
            let run = Run { from: at, to: killed.unwrap_or(at), killed };
            open.insert(key.to_owned(), runs.len());
            runs.push((key.to_owned(), run));
        } else if let Some(run) = open.remove(key).and_then(|index| runs.get_mut(index)) {
            run.1.to = at;
        }
    }
    runs
}

/// An answer as a client saw it.
#[derive(Debug)]
struct Seen {
    sent: u128,
    received: u128,
    run: String,
    is_replayed: bool,
}

/// Sends until it is answered.
async fn pay(fleet: &Fleet, key: &str, number: usize) -> Seen {
    let request = Sent::new("POST", &format!("/pay/{key}")).header("idempotency-key", key);
    for attempt in number.. {
        let sent = now();
        if let Some(to) = fleet.address(attempt)
            && let Ok(it) = request.try_send(to).await
            && it.status == 200
        {
            let is_replayed = it.header("idempotent-replayed").is_some();
            return Seen { sent, received: now(), run: it.text().to_owned(), is_replayed };
        }
        assert!(attempt < number + 5_000, "{key} is never answered");
        sleep(Duration::from_millis(20)).await;
    }
    unreachable!("attempts don't end");
}

/// `keys` times `EACH` requests, mixed, and what was seen of each key.
async fn send_all(fleet: &Arc<Fleet>, keys: usize) -> HashMap<String, Vec<Seen>> {
    let next = Arc::new(AtomicUsize::new(0));
    let clients = (0..CLIENTS).map(|_| {
        let (fleet, next) = (Arc::clone(fleet), Arc::clone(&next));
        tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= keys * EACH {
                    return seen;
                }
                // Repetitions come at once, and later, when the answer is stored.
                let key = (number / 4) % keys;
                let key = format!("k{key}");
                let answer = pay(&fleet, &key, number).await;
                seen.push((key, answer));
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut all: HashMap<String, Vec<Seen>> = HashMap::new();
    for client in clients {
        for (key, seen) in client.await.unwrap() {
            all.entry(key).or_default().push(seen);
        }
    }
    all
}

/// No answer that was stored is followed by another.
fn assert_stored_answers_stay(seen: &HashMap<String, Vec<Seen>>) {
    for (key, seen) in seen {
        for stored in seen.iter().filter(|it| it.is_replayed) {
            let later = seen.iter().filter(|it| it.sent > stored.received);
            for other in later {
                assert_eq!(other.run, stored.run, "{key}: {stored:?}, then {other:?}");
            }
        }
    }
}

async fn without_faults(keys: usize) {
    let server = Server::start();
    let fleet = Arc::new(Fleet::start(&server));
    let seen = send_all(&fleet, keys).await;
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), keys * EACH);
    assert_stored_answers_stay(&seen);
    for (key, runs) in fleet.runs() {
        assert_eq!(runs.len(), 1, "{key}: {runs:?}");
    }
    for (key, seen) in &seen {
        assert!(seen.iter().all(|it| it.run == seen[0].run), "{key}: {seen:?}");
        assert_eq!(seen.iter().filter(|it| !it.is_replayed).count(), 1, "{key}: {seen:?}");
    }
}

/// Processes are killed and the lock server stands still, in turns, while the requests run.
async fn with_faults(keys: usize, faults: usize) {
    let server = Server::start();
    let fleet = Arc::new(Fleet::start(&server));
    let (requests, requesting) = (Arc::clone(&fleet), AtomicUsize::new(0));
    let outages = Mutex::new(Vec::new());
    let sending = async {
        let seen = send_all(&requests, keys).await;
        requesting.store(1, Ordering::SeqCst);
        seen
    };
    let failing = async {
        for fault in 0..faults {
            sleep(Duration::from_millis(400)).await;
            if requesting.load(Ordering::SeqCst) == 1 {
                break;
            }
            if fault % 2 == 0 {
                tokio::task::block_in_place(|| fleet.replace());
            } else {
                let from = now();
                server.freeze();
                sleep(Duration::from_millis(2_500)).await;
                server.thaw();
                outages.lock().unwrap().push((from, now()));
            }
        }
    };
    let (seen, ()) = tokio::join!(sending, failing);
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), keys * EACH);
    assert_stored_answers_stay(&seen);
    let outages = outages.into_inner().unwrap();
    let (mut killed, mut away) = (0, 0);
    for (key, runs) in fleet.runs() {
        for run in &runs[..runs.len() - 1] {
            // It ran again after this run, so this run's answer is not stored.
            let to = run.to + STORING;
            let overlaps = |(from, until): &(u128, u128)| run.from <= *until && to >= *from;
            let is_killed = run.killed.is_some_and(|at| to >= at);
            match (is_killed, outages.iter().any(overlaps)) {
                (true, _) => killed += 1,
                (false, true) => away += 1,
                (false, false) => panic!("{key} ran again without a fault: {runs:?}"),
            }
        }
    }
    let total = keys * EACH;
    println!(
        "{total} requests, {keys} keys: {killed} ran again after their process was killed, {away} after an outage"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ik10_a_thousand_requests_to_two_processes_run_once_for_each_key() {
    without_faults(100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ik10_with_kills_and_outages_a_handler_runs_again_only_where_a_fault_explains_it() {
    with_faults(100, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a minute; `cargo xtask ci slow-tests` runs it"]
async fn ik10_ten_thousand_requests_with_a_thousand_keys_run_once_for_each_key() {
    without_faults(1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes; `cargo xtask ci slow-tests` runs it"]
async fn ik10_ten_thousand_requests_with_kills_and_outages_run_again_only_for_a_reason() {
    with_faults(1_000, 40).await;
}
