//! 500 waiters in ten processes, of which waiters and holders are killed all the time.
//!
//! It lasts 12 seconds, or `WAITING_SECONDS`: `cargo xtask mayhem` takes two minutes.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use redis_locks::{LockError, Locks, Scripting};
use testbed::{Child, ChildIo, Server, ServerBuilder};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::history::{Death, History, micros};
use crate::support::*;

const PROCESSES: usize = 10;
/// In each process: managers whose tasks hand the lock on among themselves, …
const CROWDS: usize = 2;
const CROWD: usize = 23;
/// … and managers of a single task, by which the order between managers can be seen.
const SINGLES: usize = 4;
const KEYS: [&str; 2] = ["a", "b"];
const TTL: Duration = Duration::from_secs(2);
/// Callers ask for different leases, up to `TTL`, even for one key.
const SHORT_TTL: Duration = Duration::from_millis(1200);

fn time() -> Duration {
    let seconds = env::var("WAITING_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(12))
}

static OVER: AtomicBool = AtomicBool::new(false);

/// One of the processes. A runtime with two threads, so that busy managers get their short path.
pub(crate) fn crowd(io: &mut ChildIo) {
    let history = env::var("HISTORY").unwrap();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap();
    let mut tasks = JoinSet::new();
    for manager in 0..CROWDS + SINGLES {
        let locks = open(manager);
        let (kind, size) = if manager < CROWDS { ("crowd", CROWD) } else { ("single", 1) };
        for _ in 0..size {
            tasks.spawn_on(lock_on(locks.clone(), kind, history.clone()), runtime.handle());
        }
    }
    io.say("ready");
    io.hear();
    OVER.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
    });
    io.say("done");
}

/// Without scripts if `WAITING_SCRIPTING` says so: `never`, or `mixed` for each second manager.
fn open(manager: usize) -> Locks {
    let never = match env::var("WAITING_SCRIPTING").as_deref() {
        Ok("never") => true,
        Ok("mixed") => manager.is_multiple_of(2),
        _ => false,
    };
    let scripting = if never { Scripting::Never } else { Scripting::Auto };
    let url = env::var("REDIS_URL").unwrap();
    Locks::builder().url(url).scripting(scripting).open().unwrap()
}

/// Locks and unlocks, and writes down when.
async fn lock_on(locks: Locks, kind: &'static str, history: String) {
    let mut file = OpenOptions::new().append(true).open(&history).unwrap();
    let mut random = Random::seeded(micros());
    let pid = std::process::id();
    while !OVER.load(Ordering::SeqCst) {
        let key = KEYS[usize::try_from(random.below(2)).unwrap()];
        let ttl = if random.below(2) == 0 { TTL } else { SHORT_TTL };
        let mut request = locks.mutex(key).ttl(ttl).wait(PATIENCE);
        if random.below(4) == 0 {
            request = request.fenced();
        }
        let asked = micros();
        let guard = request.acquire().await.unwrap();
        let entered = micros();
        let fence = guard.fence().unwrap_or(0);
        // One write each, so that lines stay whole when a process is killed.
        let line = format!("enter {key} {pid} {kind} {asked} {entered} {fence}\n");
        file.write_all(line.as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_micros(random.below(2_000))).await;
        let (kept, left) = (u8::from(guard.is_held()), micros());
        let line = format!("leave {key} {pid} {entered} {left} {kept}\n");
        file.write_all(line.as_bytes()).unwrap();
        match guard.release().await {
            // A process that gets no time for as long as the lease loses its lock, and learns of it; and
            // what the server does not confirm in time is released later.
            Ok(()) | Err(LockError::Lost { .. } | LockError::Backend { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn spawn(server: &Server, history: &Path) -> Child {
    let variables = [("REDIS_URL", &*server.url()), ("HISTORY", &history.to_string_lossy())];
    Child::spawn("crowd", &variables)
}

/// The process that has the lock at this moment, or was given it and takes it soon, as the token
/// tells.
fn holder(server: &Server, key: &str) -> Option<u32> {
    let token = server.get(&format!("lock:{key}"))?;
    token.trim_end_matches('+').rsplit_once('/')?.1.parse().ok()
}

/// Kills one of the processes, often one that has a lock, and starts another in its place.
fn strike(server: &Server, path: &Path, children: &mut [Child], random: &mut Random) -> Death {
    let mut victim = usize::try_from(random.below(PROCESSES as u64)).unwrap();
    if random.below(2) == 0 {
        let holder = holder(server, KEYS[usize::try_from(random.below(2)).unwrap()]);
        let found = children.iter().position(|child| Some(child.pid()) == holder);
        victim = found.unwrap_or(victim);
    }
    let pid = children[victim].pid();
    children[victim].kill9();
    let at = micros();
    let held = KEYS.into_iter().filter(|key| holder(server, key) == Some(pid)).collect();
    children[victim] = spawn(server, path);
    Death { pid, at, held }
}

async fn l4_five_hundred_waiters_in_mayhem_keep_exclusion_and_order(builder: ServerBuilder) {
    let _alone = alone().await;
    let server = builder.start();
    let path = server.dir().join("history");
    std::fs::write(&path, "").unwrap();
    let mut random = Random::fresh();
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| spawn(&server, &path)).collect();
    for child in &mut children {
        child.expect("ready");
    }
    let mut history = History::default();
    let lateness = Lateness::watch();
    let start = Instant::now();
    while start.elapsed() < time() {
        thread::sleep(ms(300 + random.below(900)));
        history.deaths.push(strike(&server, &path, &mut children, &mut random));
    }
    history.over = micros();
    for child in &mut children {
        child.tell("enough");
    }
    for child in &mut children {
        child.expect("done");
        assert!(child.wait().success(), "a process failed");
    }
    history.read(&std::fs::read_to_string(&path).unwrap());
    let late = lateness.worst();
    eprintln!("{} processes died; the machine was up to {late:?} late", history.deaths.len());
    for key in KEYS {
        let (figures, around) = history.check(key);
        eprintln!("{key}: {figures:?}");
        assert!(figures.holds > 100, "hardly anything happened");
        let bound = TTL + ms(1000) + STEPS * late;
        assert!(figures.longest_gap < bound, "{figures:?}, {around}, bound {bound:?}");
        // A newcomer may pass the queue at the very moment when a dead holder's lease has run out.
        assert!(figures.passed <= figures.dead_holders, "{figures:?}");
    }
    assert_clean_after_deaths(&server);
}

/// How many threads have to run one after the other from a holder's death to the next holder's
/// first statement: the waiter's timer, the server, the waiter's engine and its task.
const STEPS: u32 = 4;

/// Watches how late this machine runs a thread that has nothing to do but to wake up.
struct Lateness {
    worst: Arc<AtomicU64>,
}

impl Lateness {
    fn watch() -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&worst);
        thread::spawn(move || {
            let pause = ms(5);
            while let Some(worst) = watched.upgrade() {
                let start = Instant::now();
                thread::sleep(pause);
                let late = start.elapsed().saturating_sub(pause).as_micros();
                worst.fetch_max(u64::try_from(late).unwrap(), Ordering::SeqCst);
            }
        });
        Self { worst }
    }

    fn worst(&self) -> Duration {
        Duration::from_micros(self.worst.load(Ordering::SeqCst))
    }
}

on_both_servers!(l4_five_hundred_waiters_in_mayhem_keep_exclusion_and_order);
