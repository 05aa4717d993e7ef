//! Mutexes without scripts, by transactions: what a pair costs beside scripts and the bare driver, what
//! renewing 10,000 locks costs, and what becomes of 16 clients that want one key.
//!
//! `cargo bench --bench transactions` starts servers of its own; with the name of a part (`pair`, `held`,
//! `contended`) it measures that part alone. Rounds alternate, and ratios are taken within each round,
//! so that a busy machine slows both.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis_locks::{Locks, Scripting};
use testbed::{Server, ServerBinary};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use support::bare::Bare;
use support::figures::{median, tell};
use support::held::{keep, take};
use support::pairs::{Pair, ROUNDS, median_pair, warm_up};

const TTL: Duration = Duration::from_secs(6);

const HELD: usize = 10_000;
const HELD_FOR: Duration = Duration::from_secs(15);

const CLIENTS: usize = 16;
const CONTEND_FOR: Duration = Duration::from_secs(5);

/// What a lock that is handed on should cost. It costs twice as much: `docs/PROTOCOL.md` says why.
const COMMANDS: f64 = 12.0;

/// Commands that this program sends beside those of the locks.
const NOT_COUNTED: [&str; 7] =
    ["info", "config|resetstat", "ping", "hello", "client|id", "client|setinfo", "config"];

fn main() -> Result<()> {
    let part = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let valkey = ServerBinary::valkey(9).map(|binary| Server::builder().binary(binary).start());
    for server in [Some(Server::start()), valkey].into_iter().flatten() {
        let (major, minor, patch) = server.binary().version();
        println!("on {:?} {major}.{minor}.{patch}", server.binary().flavor());
        if wanted("pair") {
            pairs(&runtime, &server)?;
        }
        if wanted("held") {
            held(&runtime, &server)?;
        }
        if wanted("contended") {
            contended(&runtime, &server)?;
        }
    }
    Ok(())
}

async fn open(server: &Server, scripting: Scripting) -> Result<Locks> {
    Ok(Locks::builder().url(server.url()).ttl(TTL).scripting(scripting).connect().await?)
}

/// Something that takes and gives back a lock: a library, or the bare driver.
#[derive(Clone)]
enum Subject {
    Ours(Locks),
    Bare(Bare),
    /// The bare driver with the commands that ours sends: the least that a pair can cost.
    Floor {
        common: MultiplexedConnection,
        own: MultiplexedConnection,
        number: u64,
    },
}

impl Subject {
    async fn floor(server: &Server) -> Result<Self> {
        let client = redis::Client::open(server.url())?;
        let connect = || client.get_multiplexed_async_connection();
        let (common, own) = (connect().await?, connect().await?);
        Ok(Self::Floor { common, own, number: 0 })
    }
}

impl Pair for Subject {
    async fn pair(&mut self) -> Result<()> {
        match self {
            Self::Ours(locks) => locks.mutex("pair").acquire().await?.release().await?,
            Self::Bare(bare) => bare.pair().await?,
            Self::Floor { common, own, number } => {
                *number += 1;
                let token = format!("{number:032x}");
                let mut set = redis::cmd("SET");
                set.arg("pair:floor").arg(&token).arg("NX").arg("PX").arg(30_000);
                let set: Option<String> = set.query_async(common).await?;
                ensure!(set.is_some(), "another client has the lock of the bare driver");
                let mut read = redis::pipe();
                read.cmd("WATCH").arg("pair:floor").ignore();
                read.cmd("GET").arg("pair:floor").cmd("MULTI").ignore();
                let (value,): (String,) = read.query_async(own).await?;
                ensure!(value == token, "the lock of the bare driver was lost");
                let mut write = redis::pipe();
                write.cmd("DEL").arg("pair:floor").ignore().cmd("EXEC");
                let ((deleted,),): ((u32,),) = write.query_async(own).await?;
                ensure!(deleted == 1, "the lock of the bare driver was lost");
            }
        }
        Ok(())
    }
}

fn pairs(runtime: &Runtime, server: &Server) -> Result<()> {
    let is_native = server.binary().flavor() == testbed::Flavor::Valkey;
    let subjects: [Subject; 4] = runtime.block_on(async {
        anyhow::Ok([
            Subject::Ours(open(server, Scripting::Never).await?),
            Subject::Ours(open(server, Scripting::Auto).await?),
            Subject::Bare(Bare::connect(server.url()).await?),
            Subject::floor(server).await?,
        ])
    })?;
    for subject in subjects.clone() {
        runtime.block_on(async { tokio::spawn(warm_up(subject)).await? })?;
    }
    let on_worker =
        |subject: Subject| runtime.block_on(async { tokio::spawn(median_pair(subject)).await? });
    let mut rounds = [const { Vec::new() }; 4];
    let (mut to_scripts, mut to_bare, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut times = [0.0; 4];
        for (time, subject) in times.iter_mut().zip(&subjects) {
            *time = on_worker(subject.clone())?;
        }
        to_scripts.push(times[0] / times[1]);
        to_bare.push(times[0] / times[2]);
        floors.push(times[3] / times[2]);
        rounds.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
    }
    for (name, times) in ["transactions", "scripts", "bare driver", "floor"].iter().zip(rounds) {
        println!("  pair, {name:12} {:8.1} us", median(times) * 1e6);
    }
    println!("  the same commands by the bare driver / bare driver {:.2} x", median(floors));
    let (scripts, bare) = (median(to_scripts), median(to_bare));
    match is_native {
        true => tell("pair / scripts", scripts, 1.05, " x"),
        false => tell("pair / bare driver", bare, 2.2, " x"),
    }
    Ok(())
}

fn held(runtime: &Runtime, server: &Server) -> Result<()> {
    let locks = runtime.block_on(open(server, Scripting::Never))?;
    let guards = runtime.block_on(take(&locks, "held", HELD))?;
    let before = server.command_counts();
    let kept = keep(server, &guards, HELD_FOR)?;
    let counts = server.command_counts();
    let count = |name: &str| {
        counts.get(name).copied().unwrap_or_default()
            - before.get(name).copied().unwrap_or_default()
    };
    println!("  {} renewals in {} transactions", count("pexpire"), count("exec"));
    tell("10,000 held: lost", kept.lost as f64, 0.0, "");
    tell("10,000 held: of a core", kept.core * 100.0, 15.0, " %");
    let (start, execs) = (Instant::now(), server.command_counts());
    runtime.block_on(async {
        let mut releasing = JoinSet::new();
        for guard in guards {
            releasing.spawn(guard.release());
        }
        while let Some(released) = releasing.join_next().await {
            released??;
        }
        anyhow::Ok(())
    })?;
    let exec = |counts: &std::collections::BTreeMap<String, u64>| {
        counts.get("exec").copied().unwrap_or_default()
    };
    println!(
        "  {HELD} released in {:.1?} by {} transactions",
        start.elapsed(),
        exec(&server.command_counts()) - exec(&execs)
    );
    Ok(())
}

/// Each client is a manager of its own, as another process would be.
fn contended(runtime: &Runtime, server: &Server) -> Result<()> {
    let over = Arc::new(AtomicBool::new(false));
    let served: Vec<Arc<AtomicU64>> = (0..CLIENTS).map(|_| Arc::default()).collect();
    let counts = runtime.block_on(async {
        let mut clients = JoinSet::new();
        let mut all = Vec::new();
        for own in &served {
            let locks = open(server, Scripting::Never).await?;
            all.push(locks.clone());
            let (over, own) = (Arc::clone(&over), Arc::clone(own));
            clients.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = locks.mutex("hot").acquire().await?;
                    own.fetch_add(1, Ordering::Relaxed);
                    guard.release().await?;
                }
                anyhow::Ok(())
            });
        }
        // The first ones begin without a queue.
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.reset_counts();
        served.iter().for_each(|own| own.store(0, Ordering::Relaxed));
        tokio::time::sleep(CONTEND_FOR).await;
        let counts = server.command_counts();
        over.store(true, Ordering::Relaxed);
        while let Some(client) = clients.join_next().await {
            client??;
        }
        anyhow::Ok(counts)
    })?;
    let served: Vec<u64> = served.iter().map(|own| own.load(Ordering::Relaxed)).collect();
    let locks = served.iter().sum::<u64>().max(1) as f64;
    let counted = counts.iter().filter(|(name, _)| !NOT_COUNTED.contains(&name.as_str()));
    let mut sent = 0.0;
    for (name, count) in counted {
        sent += *count as f64;
        println!("  {name:20} {:6.2} per lock", *count as f64 / locks);
    }
    let (most, least) = (served.iter().max(), served.iter().min());
    let spread = most.map_or(0.0, |it| *it as f64) / least.map_or(1.0, |it| (*it as f64).max(0.1));
    tell_transactions(&counts, locks);
    println!("  {:.0} locks a second", locks / CONTEND_FOR.as_secs_f64());
    tell("commands per lock", sent / locks, COMMANDS, "");
    tell("most / least served", spread, 3.0, " x");
    Ok(())
}

/// How many transactions of each sort a lock took, counted by commands that no other sort has.
fn tell_transactions(counts: &std::collections::BTreeMap<String, u64>, locks: f64) {
    let per_lock = |name: &str| counts.get(name).map_or(0.0, |count| *count as f64 / locks);
    let (queued, handed_on) = (per_lock("zadd"), per_lock("zrem"));
    // A place sets the ends of two keys, a claim that of the lock.
    let claimed = per_lock("pexpire") - 2.0 * queued;
    let aborted = per_lock("watch") - handed_on - claimed;
    println!(
        "  {queued:.2} queued, {claimed:.2} claimed, {handed_on:.2} handed on, {aborted:.2} aborted"
    );
}
