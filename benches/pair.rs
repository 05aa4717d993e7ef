//! Lock and unlock without contention, beside the bare driver doing `SET NX PX` and a script, on a
//! runtime with two workers: once as a task on a worker, once inside `block_on` on the main thread.
//!
//! `cargo bench --bench pair` starts a server of its own. Rounds alternate, and the ratio is taken
//! within each round, so that a busy machine slows both. `cargo xtask bench` compares with other
//! libraries.

mod support;

use std::time::Duration;

use anyhow::Result;
use redis::IntoConnectionInfo;
use redis::io::tcp::TcpSettings;
use redis_locks::Locks;
use testbed::Server;
use tokio::runtime::{Builder, Runtime};

use support::bare::Bare;
use support::figures::median;
use support::pairs::{Pair, ROUNDS, median_pair, warm_up};

const TTL: Duration = Duration::from_secs(30);

/// What is compared with the bare driver, and the largest ratio that is allowed.
const GOALS: [(&str, Release, f64); 2] =
    [("release awaited", Release::Awaited, 1.10), ("in background", Release::InBackground, 0.65)];

#[derive(Clone, Copy, Debug)]
enum Release {
    Awaited,
    InBackground,
}

/// Which thread runs the task.
#[derive(Clone, Copy, Debug)]
enum Place {
    Worker,
    Main,
}

/// Something that takes and gives back a lock: a library, or the bare driver.
#[derive(Clone)]
enum Subject {
    Ours(Locks, Release),
    Bare(Bare),
}

fn main() -> Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = Server::start();
    let locks = runtime.block_on(Locks::builder().url(server.url()).ttl(TTL).connect())?;
    // Whichever of the two makes the driver faster.
    let mut bare = Vec::new();
    for nodelay in [false, true] {
        bare.push(runtime.block_on(Subject::bare(&server.url(), nodelay))?);
    }
    for subject in bare.iter().cloned().chain([Subject::Ours(locks.clone(), Release::Awaited)]) {
        runtime.block_on(async { tokio::spawn(warm_up(subject)).await? })?;
    }

    let (major, minor, patch) = server.binary().version();
    println!("on {:?} {major}.{minor}.{patch}, {ROUNDS} rounds", server.binary().flavor());
    for place in [Place::Worker, Place::Main] {
        for (name, release, goal) in GOALS {
            let (mut own, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let ours = measure(&runtime, place, Subject::Ours(locks.clone(), release))?;
                let mut best = f64::INFINITY;
                for subject in &bare {
                    best = best.min(measure(&runtime, place, subject.clone())?);
                }
                own.push(ours);
                theirs.push(best);
                ratios.push(ours / best);
            }
            let place = match place {
                Place::Worker => "spawned on a worker",
                Place::Main => "block_on, main thread",
            };
            let ratio = median(ratios);
            let verdict = if ratio <= goal { "reached" } else { "MISSED" };
            println!(
                "{place:22} {name:16} {:6.1} us, bare driver {:6.1} us: {ratio:.2} x, \
                 goal {goal:.2} x {verdict}",
                median(own) * 1e6,
                median(theirs) * 1e6,
            );
        }
    }
    Ok(())
}

impl Subject {
    async fn bare(url: &str, nodelay: bool) -> Result<Self> {
        let settings = TcpSettings::default().set_nodelay(nodelay);
        let address = url.into_connection_info()?.set_tcp_settings(settings);
        Ok(Self::Bare(Bare::connect(address).await?))
    }
}

impl Pair for Subject {
    async fn pair(&mut self) -> Result<()> {
        match self {
            Self::Ours(locks, release) => {
                let guard = locks.mutex("pair").acquire().await?;
                match release {
                    Release::Awaited => guard.release().await?,
                    Release::InBackground => guard.release_in_background(),
                }
            }
            Self::Bare(bare) => bare.pair().await?,
        }
        Ok(())
    }
}

/// The median time of a pair in one round, in seconds.
fn measure(runtime: &Runtime, place: Place, subject: Subject) -> Result<f64> {
    match place {
        Place::Worker => runtime.block_on(async { tokio::spawn(median_pair(subject)).await? }),
        Place::Main => runtime.block_on(median_pair(subject)),
    }
}
