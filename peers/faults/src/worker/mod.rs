//! The workers of the Rust libraries: they lock, count, unlock, and say so, one line at a time.
//!
//! `workers/worker.py` and `workers/worker.js` do the same for the libraries of other languages.

mod distributed_lock;
mod ours;
mod redlock;
mod rlock;
mod rslock;

pub(crate) use ours::REJOIN;

use std::fmt::Display;
use std::future::Future;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::clock::now;

/// How an acquisition went.
pub(crate) enum Acquired<G> {
    Yes(G),
    /// Another worker has the lock.
    Busy,
    /// The server could not be asked.
    Failed(String),
}

/// What a library said about a hold when it was released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It was held to its end, as far as the library says.
    Ok,
    /// The library says that it was lost.
    Lost,
    /// The release failed, so the caller knows that it can't be sure.
    Unknown,
}

impl Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        })
    }
}

/// What a worker is told on its command line.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) library: String,
    pub(crate) urls: Vec<String>,
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    pub(crate) body: Duration,
    /// How long one acquisition may wait.
    pub(crate) wait: Duration,
    /// How long one command may take.
    pub(crate) command_timeout: Duration,
}

impl Terms {
    /// `library urls key ttl body wait command-timeout`, times in milliseconds.
    pub(crate) fn read(arguments: &[String]) -> Result<Self> {
        let [library, urls, key, ttl, body, wait, command_timeout] = arguments else {
            bail!("a worker takes seven arguments")
        };
        let millis = |text: &String| anyhow::Ok(Duration::from_millis(text.parse()?));
        Ok(Self {
            library: library.clone(),
            urls: urls.split(',').map(ToOwned::to_owned).collect(),
            key: key.clone(),
            ttl: millis(ttl)?,
            body: millis(body)?,
            wait: millis(wait)?,
            command_timeout: millis(command_timeout)?,
        })
    }

    pub(crate) fn arguments(&self) -> [String; 7] {
        let millis = |time: Duration| time.as_millis().to_string();
        [
            self.library.clone(),
            self.urls.join(","),
            self.key.clone(),
            millis(self.ttl),
            millis(self.body),
            millis(self.wait),
            millis(self.command_timeout),
        ]
    }
}

/// A library as its own documentation says to use it.
pub(crate) trait Library: Sized {
    type Guard;

    fn open(terms: &Terms) -> impl Future<Output = Result<Self>>;

    fn acquire(&self, terms: &Terms) -> impl Future<Output = Acquired<Self::Guard>>;

    /// Whether the library says, before the write, that the lock is still held.
    fn is_held(guard: &Self::Guard) -> bool;

    fn fence(guard: &Self::Guard) -> Option<u64> {
        let _ = guard;
        None
    }

    fn release(&self, guard: Self::Guard) -> impl Future<Output = Ended>;
}

/// A hold that its library says to be valid for a certain time, and nothing more.
pub(crate) struct Timed<G> {
    pub(crate) inner: G,
    pub(crate) valid_until: Instant,
}

impl<G> Timed<G> {
    pub(crate) fn is_valid(&self) -> bool {
        Instant::now() < self.valid_until
    }

    pub(crate) fn ended(&self) -> Ended {
        if self.is_valid() { Ended::Ok } else { Ended::Lost }
    }
}

/// Runs a worker to its end.
pub(crate) fn work(arguments: &[String]) -> Result<()> {
    let terms = Terms::read(arguments)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match terms.library.as_str() {
            "ours" | "ours-quorum" => run::<ours::Ours>(&terms).await,
            "rslock" => run::<rslock::Rslock>(&terms).await,
            "rlock" => run::<rlock::RLock>(&terms).await,
            "redlock-rs" => run::<redlock::Redlock>(&terms).await,
            "distributed-lock" => run::<distributed_lock::DistributedLock>(&terms).await,
            other => bail!("there is no library `{other}`"),
        }
    })
}

/// On a busy machine the first connection may take longer than its limit.
async fn opened<L: Library>(terms: &Terms) -> Result<L> {
    let started = Instant::now();
    loop {
        match L::open(terms).await {
            Err(_) if started.elapsed() < Duration::from_secs(15) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            opened => return opened,
        }
    }
}

async fn run<L: Library>(terms: &Terms) -> Result<()> {
    let library = opened::<L>(terms).await?;
    // The answer says until when new calls may begin, and comes when all are ready.
    let until = ask(format_args!("ready"))?.parse::<u64>()?;
    while now() < until {
        say(format_args!("call {}", now()))?;
        match library.acquire(terms).await {
            Acquired::Yes(guard) => hold(&library, guard, terms).await?,
            Acquired::Busy => say(format_args!("busy {}", now()))?,
            Acquired::Failed(why) => {
                say(format_args!("failed {} {}", now(), why.replace(['\n', '\r'], " ")))?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    Ok(())
}

/// The body: reads the counter, works, and writes what it read plus one.
async fn hold<L: Library>(library: &L, guard: L::Guard, terms: &Terms) -> Result<()> {
    let fence = L::fence(&guard).map_or_else(|| "-".to_owned(), |fence| fence.to_string());
    say(format_args!("got {} {fence}", now()))?;
    let answer = ask(format_args!("read {fence}"))?;
    let (plain, fenced) = answer.split_once(' ').context("two numbers")?;
    let plain = plain.parse::<u64>()? + 1;
    let fenced =
        fenced.parse::<u64>().map_or_else(|_| "-".to_owned(), |value| (value + 1).to_string());
    tokio::time::sleep(terms.body * 2 / 3).await;
    if L::is_held(&guard) {
        // Between the check and the write: no library can help there, a fence can.
        tokio::time::sleep(terms.body / 3).await;
        ask(format_args!("write {fence} {plain} {fenced}"))?;
    } else {
        say(format_args!("skip {}", now()))?;
    }
    say(format_args!("end {}", now()))?;
    let ended = library.release(guard).await;
    say(format_args!("ended {} {ended}", now()))
}

fn say(line: std::fmt::Arguments<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn ask(line: std::fmt::Arguments<'_>) -> Result<String> {
    say(line)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}
