mod belief;
mod history;
mod kind;
mod nemesis;
mod place;
mod random;
mod scripting;
mod store;
mod target;
mod worker;
mod workers;

pub(crate) use scripting::Mix;
pub(crate) use worker::work;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use testbed::{Permission, Server, eventually, find_or_install};

use history::History;
use kind::{Kind, is_volatile};
use nemesis::Nemesis;
use place::{PlaceKind, Single};
use random::Random;
use store::Store;
use workers::Workers;

/// The default number of workers.
const WORKERS: usize = 3;
const TTL: Duration = Duration::from_millis(800);
/// The longest lease: workers ask for different ones, even for the same key.
const LONGEST_TTL: Duration = Duration::from_millis(2400);
const WAIT: Duration = Duration::from_secs(2);

struct Options {
    minutes: f64,
    seed: u64,
    place: PlaceKind,
    workers: usize,
    scripting: Mix,
}

/// Breaks servers, network and workers at random for some minutes, while these use each kind of lock,
/// and checks what happened.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Options { minutes, seed, place, workers, scripting } = options(arguments)?;
    let binary = find_or_install(Permission::System).map_err(|advice| anyhow!(advice))?;
    println!(
        "soak for {minutes} minutes with --seed {seed}, {workers} processes, {scripting}, on {binary}"
    );
    let PlaceKind::Single = place;
    let place = Single::start(&binary, workers);
    let store = Server::builder().binary(binary).start();
    let history = Arc::new(Mutex::new(History::default()));
    let mut workers = Workers::start(&place, &store.url(), seed, scripting, &history)?;
    let mut nemesis = Nemesis { place: &place, random: Random::new(seed), killed: 0 };

    let start = Instant::now();
    let end = start + Duration::from_secs_f64(minutes * 60.0);
    let (mut faults, mut shown) = (0_u64, Instant::now());
    while Instant::now() < end {
        // In short stretches, so that a worker that gave up is noticed soon.
        let until = end.min(Instant::now() + Duration::from_secs(5));
        let mut last = String::new();
        nemesis.rage(until, &mut workers, |done| {
            faults += 1;
            done.clone_into(&mut last);
        });
        workers.check()?;
        if shown.elapsed() >= Duration::from_secs(10) || Instant::now() >= end {
            shown = Instant::now();
            progress(&history, start.elapsed(), faults, &last);
        }
    }

    println!("the network is whole again; everybody must come back to work");
    let before: Vec<usize> =
        workers.numbers().map(|number| lock(&history).granted_to(number)).collect();
    thread::sleep(Duration::from_secs(5));
    workers.check()?;
    let mut found = Vec::new();
    for (number, before) in workers.numbers().zip(before) {
        let granted = lock(&history).granted_to(number) - before;
        if granted < 5 {
            found.push(format!("worker {number} had {granted} holds in 5 s without any fault"));
        }
    }
    workers.end();
    // Killed with their locks: nothing may be left once the leases are over.
    eventually(LONGEST_TTL * 2 + Duration::from_secs(3), "every lease has ended", || {
        place.locks_left().is_empty()
    });
    println!("\n{faults} faults, {} of them the killing of a server or a worker", nemesis.killed);
    verdict(&lock(&history), &mut Store::connect(&store.url())?, found, seed, scripting)
}

fn verdict(
    history: &History,
    store: &mut Store,
    mut found: Vec<String>,
    seed: u64,
    scripting: Mix,
) -> Result<()> {
    found.extend(history.violations(|key| !is_volatile(key)));
    for took in &history.late {
        found.push(format!("a call took {took} ms"));
    }
    found.extend(history.excesses.iter().cloned());
    if history.compared == 0 {
        found.push("no guard was ever compared with the server".into());
    }
    let lost_fenced = store.lost_fenced(&history.fenced)?;
    if lost_fenced > 0 {
        found.push(format!("{lost_fenced} fenced updates were lost"));
    }
    let count = |map: &std::collections::BTreeMap<u64, u64>| map.values().sum::<u64>();
    println!("{} holds, {} found lost", history.total(), history.lost);
    for kind in Kind::NAMES {
        let holds = history.granted.get(kind).copied().unwrap_or_default();
        println!("  {kind:<7}{holds:>8}");
        if holds == 0 && scripting.has(kind) {
            found.push(format!("there was no {kind} hold at all"));
        }
    }
    println!("{} calls found the lock busy, {} the server broken", history.busy, history.failed);
    println!("{} looks at what a guard believes and the server says", history.compared);
    println!("{} managers were shut down under load", history.shut_down);
    println!("fenced updates: {}, lost: {lost_fenced}", count(&history.fenced));
    println!(
        "plain updates: {}, lost: {} (by paused workers and lost data, as is to be expected)",
        count(&history.plain),
        store.lost_plain(&history.plain)?
    );
    if found.is_empty() {
        println!(
            "no two valid guards that exclude each other, every fence in order, nothing left behind"
        );
        return Ok(());
    }
    for violation in found.iter().take(20) {
        println!("VIOLATION {violation}");
    }
    bail!("{} violations; --seed {seed} repeats the faults, not their timing", found.len())
}

fn progress(history: &Mutex<History>, passed: Duration, faults: u64, last: &str) {
    let history = lock(history);
    let violations = history.violations(|key| !is_volatile(key)).len();
    println!(
        "{:02}:{:02}  {faults} faults, {} holds, {} lost, {} busy, {} failed, {violations} \
         violations; {last}",
        passed.as_secs() / 60,
        passed.as_secs() % 60,
        history.total(),
        history.lost,
        history.busy,
        history.failed,
    );
}

fn lock(history: &Mutex<History>) -> std::sync::MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(arguments: &[String]) -> Result<Options> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let seed = u64::from(clock);
    let mut options = Options {
        minutes: 10.0,
        seed,
        place: PlaceKind::Single,
        workers: WORKERS,
        scripting: Mix::Auto,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--minutes" => options.minutes = value.parse().context("--minutes wants a number")?,
            "--seed" => options.seed = value.parse().context("--seed wants a whole number")?,
            "--place" => options.place = PlaceKind::parse(value)?,
            "--workers" => options.workers = value.parse().context("--workers wants a number")?,
            "--scripting" => options.scripting = Mix::parse(value)?,
            other => bail!(
                "unknown option {other}; there are --minutes, --seed, --place, --workers and \
                 --scripting"
            ),
        }
    }
    if !(options.minutes > 0.0 && options.minutes < 100_000.0) {
        bail!("--minutes wants a number above zero");
    }
    if options.workers == 0 {
        bail!("--workers wants at least one");
    }
    Ok(options)
}
