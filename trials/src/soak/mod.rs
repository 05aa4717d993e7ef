mod addresses;
mod belief;
mod clock;
mod event;
mod excuses;
mod fault;
mod forces;
mod gift;
mod history;
mod jobs;
mod kind;
mod losses;
mod nemesis;
mod opening;
mod operator;
mod options;
mod place;
mod port_map;
mod random;
mod scripting;
mod standstill;
mod store;
mod target;
mod tenant;
mod terms;
mod verdict;
mod worker;
mod worker_terms;
mod workers;

pub(crate) use options::SoakOptions;
pub(crate) use scripting::Mix;
pub(crate) use worker::work;
pub(crate) use worker_terms::WorkerTerms;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use testbed::Server;

use history::History;
use nemesis::Nemesis;
use place::PlaceKind;
use store::Store;
use tenant::Tenant;
use verdict::Verdict;
use workers::Workers;

const TTL: Duration = Duration::from_millis(800);
/// The longest lease: workers ask for different ones, even for the same key.
const LONGEST_TTL: Duration = Duration::from_millis(2400);
/// Of a quorum: how long a node that has started does not vote.
const REJOIN: Duration = Duration::from_millis(3500);
const WAIT: Duration = Duration::from_secs(2);

/// Breaks servers, network and workers at random for some minutes, while these use each kind of lock,
/// and checks what happened.
pub(crate) fn run(options: SoakOptions) -> Result<()> {
    let SoakOptions { minutes, seed, place, server, workers, scripting } = options;
    if place != PlaceKind::Single && scripting != Mix::Auto {
        bail!("without scripts there is `--place single` only");
    }
    let (binary, workers) = (server.binary()?, usize::from(workers));
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let seed = seed.unwrap_or_else(|| u64::from(clock()));
    let on_quorum = matches!(place, PlaceKind::Quorum { .. });
    println!(
        "soak for {} minutes with --seed {seed}, {place:?}, {workers} processes, {scripting}, \
         on {binary}",
        minutes.as_secs_f64() / 60.0
    );
    let place = place.start(&binary, workers);
    let store = Server::builder().binary(binary).start();
    let history = Arc::new(Mutex::new(History::default()));
    let machine = Arc::clone(&history);
    standstill::watch(move |time| {
        lock(&machine).excuses.add(None, "the machine stood still".to_owned(), time);
    });
    let addresses = (0..workers).map(|worker| place.addresses(worker)).collect();
    let mut workers = Workers::start(addresses, &store.url(), seed, scripting, &history)?;
    let mut tenant = Tenant::start(place.servers(), seed);
    let mut nemesis = Nemesis::new(&*place, seed);
    rage(&mut nemesis, &mut workers, &history, minutes)?;

    let found = recovery(&mut workers, &history)?;
    workers.end();
    println!("another program wrote {} times to the keys of one lock", tenant.end());
    nemesis.settle();
    // Killed with their locks: nothing may be left once the leases are over.
    let (ended, limit) = (Instant::now(), LONGEST_TTL * 2 + Duration::from_secs(3));
    let left = loop {
        tenant.tidy();
        let left = place.locks_left();
        if left.is_empty() || ended.elapsed() > limit {
            break left;
        }
        thread::sleep(Duration::from_millis(50));
    };
    ensure!(left.is_empty(), "after {limit:?} there still are {left:?}");
    let mut store = Store::connect(&store.url())?;
    Verdict { history: &lock(&history), nemesis: &nemesis, scripting, on_quorum, found }
        .tell(&mut store)
        .with_context(|| format!("--seed {seed} repeats the faults, not their timing"))
}

/// Causes faults for this time, and tells now and then how far it is.
fn rage(
    nemesis: &mut Nemesis<'_>,
    workers: &mut Workers,
    history: &Mutex<History>,
    time: Duration,
) -> Result<()> {
    let (start, mut shown) = (Instant::now(), Instant::now());
    let end = start + time;
    while Instant::now() < end {
        // In short stretches, so that a worker that gave up is noticed soon.
        let last = nemesis.rage(end.min(Instant::now() + Duration::from_secs(5)), workers);
        workers.check()?;
        if shown.elapsed() >= Duration::from_secs(10) || Instant::now() >= end {
            shown = Instant::now();
            progress(&lock(history), nemesis, start.elapsed(), &last);
        }
    }
    Ok(())
}

fn progress(history: &History, nemesis: &Nemesis<'_>, passed: Duration, last: &str) {
    let findings = history.findings(&nemesis.losses);
    println!(
        "{:02}:{:02}  {} faults, {} holds, {} lost, {} busy, {} failed, {} violations; {last}",
        passed.as_secs() / 60,
        passed.as_secs() % 60,
        nemesis.faults,
        history.total(),
        history.lost,
        history.busy,
        history.failed,
        findings.violations.len(),
    );
}

/// The workers that do not work again when there is no fault any more.
fn recovery(workers: &mut Workers, history: &Mutex<History>) -> Result<Vec<String>> {
    println!("the network is whole again; everybody must come back to work");
    let granted = |number| lock(history).granted_to(number);
    let before: Vec<_> = workers.numbers().map(granted).collect();
    thread::sleep(Duration::from_secs(5));
    workers.check()?;
    let mut found = Vec::new();
    for (number, before) in workers.numbers().zip(before) {
        let granted = granted(number) - before;
        if granted < 5 {
            found.push(format!("worker {number} had {granted} holds in 5 s without any fault"));
        }
    }
    Ok(found)
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}
