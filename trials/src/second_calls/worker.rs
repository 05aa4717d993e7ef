//! What the processes do.

use std::io::{BufRead, Write, stdin, stdout};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use redis_locks::{LockError, Locks};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::Trial;

/// How many calls a process makes in one round of the trial of `queue`, which takes a second.
pub(super) const CALLS: u64 = 1_000;

/// The lease of the trial with faults: longer than any of them, but for the deaths.
const LEASE: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct CallerTerms {
    trial: Trial,
    #[arg(long)]
    url: String,
    /// Where it tells of its bodies
    #[arg(long)]
    socket: Option<PathBuf>,
}

pub(crate) fn work(terms: &CallerTerms) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = Locks::builder().url(&*terms.url).ttl(LEASE).connect().await?;
        say("ready")?;
        match (terms.trial, &terms.socket) {
            (Trial::Queue, _) => queue(&locks, &terms.url).await,
            (Trial::Newest, Some(socket)) => newest(&locks, socket.clone()).await,
            (Trial::Newest, None) => bail!("it has no socket"),
            (Trial::Steady, _) => steady(&locks).await,
            (Trial::Mixed, _) => bail!("it has no processes of its own"),
        }
    })
}

fn say(line: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

type Database = Arc<Mutex<redis::Connection>>;

/// A change for each call, a call for each millisecond.
async fn queue(locks: &Locks, url: &str) -> Result<()> {
    let store = Arc::new(Mutex::new(redis::Client::open(url)?.get_connection()?));
    for line in stdin().lock().lines() {
        line?;
        let (begun, mut calls) = (Instant::now(), JoinSet::new());
        for number in 0..CALLS {
            sleep_until(begun + Duration::from_millis(number)).await;
            ask::<u64>(&store, redis::cmd("INCR").arg("changes"))?;
            calls.spawn(bring_up_to_date(locks.clone(), Arc::clone(&store)));
        }
        let (mut ran, mut crowded) = (0_u64, 0_u64);
        while let Some(call) = calls.join_next().await {
            match call? {
                Ok(()) => ran += 1,
                Err(Failed::Lock(LockError::Crowded { .. })) => crowded += 1,
                Err(Failed::Lock(error)) => return Err(error.into()),
                Err(Failed::Store(error)) => return Err(error),
            }
        }
        say(&format!("{ran} {crowded} {}", begun.elapsed().as_millis()))?;
    }
    Ok(())
}

enum Failed {
    Lock(LockError),
    Store(anyhow::Error),
}

impl From<LockError> for Failed {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

/// Reads what has changed, then works.
async fn bring_up_to_date(locks: Locks, store: Database) -> Result<(), Failed> {
    let body = async move |_: &redis_locks::Guard| {
        let changes: u64 = ask(&store, redis::cmd("GET").arg("changes")).map_err(Failed::Store)?;
        sleep(Duration::from_millis(5)).await;
        ask::<()>(&store, redis::cmd("SET").arg("seen").arg(changes)).map_err(Failed::Store)
    };
    locks.mutex("sync").queue(1).try_run(body).await
}

fn ask<T: redis::FromRedisValue>(store: &Database, command: &redis::Cmd) -> Result<T> {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(command.query(&mut *store)?)
}

/// A body that tells when it begins and when it has ended, also when it is dropped.
struct Body<'a>(&'a UnixDatagram);

impl Body<'_> {
    fn tell(&self, what: &str) {
        // Without its observer the trial is over.
        let _ = self.0.send(format!("{what} {}", process::id()).as_bytes());
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        self.tell("left");
    }
}

/// Calls until it is killed, and tells of its bodies.
async fn newest(locks: &Locks, socket: PathBuf) -> Result<()> {
    let observer = UnixDatagram::unbound()?;
    observer.connect(socket)?;
    let mut pause = u64::from(process::id());
    loop {
        pause =
            pause.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sleep(Duration::from_millis((pause >> 33) % 40)).await;
        let lasts = Duration::from_millis((pause >> 40) % 60);
        let observer = &observer;
        let body = async |_: &redis_locks::Guard| {
            let body = Body(observer);
            body.tell("came");
            sleep(lasts).await;
        };
        let outcome = locks.mutex("preview").newest().run(body).await;
        let told = match outcome {
            Ok(()) => "ok",
            Err(LockError::Superseded { .. }) => "superseded",
            Err(LockError::Lost { .. }) => "lost",
            Err(LockError::Backend { .. }) => "backend",
            Err(error) => return Err(error.into()),
        };
        let _ = observer.send(format!("{told} {}", process::id()).as_bytes());
    }
}

/// Calls each 40 ms until it is asked to end, whatever became of the calls before.
async fn steady(locks: &Locks) -> Result<()> {
    let (begun, mut calls) = (Instant::now(), JoinSet::new());
    let (mut ended, mut superseded) = (0_u64, 0_u64);
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel::<String>();
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let _ = asked.send(line);
        }
    });
    for number in 0.. {
        sleep_until(begun + Duration::from_millis(40) * number).await;
        let locks = locks.clone();
        calls.spawn(async move {
            let body = async move |_: &redis_locks::Guard| sleep(Duration::from_millis(30)).await;
            locks.mutex("preview").newest().run(body).await
        });
        while let Some(call) = calls.try_join_next() {
            match call? {
                Ok(()) => ended += 1,
                Err(LockError::Superseded { .. }) => superseded += 1,
                Err(error) => return Err(error.into()),
            }
        }
        match asks.try_recv() {
            Ok(_) => say(&format!("{ended} {superseded} {}", calls.len()))?,
            Err(tokio::sync::mpsc::error::TryRecvError::Empty) => {}
            Err(_) => break,
        }
    }
    Ok(())
}
