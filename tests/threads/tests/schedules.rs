//! Tries many orders of threads' steps. `THREADS_SCHEDULES` says how many for each world, 2,000 without it, and
//! `THREADS_SEED` which.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};
use threads::{CASES, Case};

/// How many schedules a changed primitive may take to be found.
const MOST: usize = 100_000;

fn schedules() -> usize {
    std::env::var("THREADS_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(2_000)
}

/// The same seed brings the same orders each time.
fn seed() -> u64 {
    std::env::var("THREADS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 0x1_0000;
    // Where a thread only looks again and again, no step leads on.
    config.max_steps = MaxSteps::FailAfter(20_000);
    config.failure_persistence = shuttle::FailurePersistence::None;
    config
}

/// Runs a world in so many orders: half of them at random, the others with few changes of threads. Returns in
/// how many it ended.
fn run(case: &Case, count: usize) -> Result<usize, (usize, String)> {
    let begun = Arc::new(AtomicUsize::new(0));
    let (counted, run) = (Arc::clone(&begun), case.run);
    let counting = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        run();
    };
    let half = count.div_ceil(2);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(RandomScheduler::new_from_seed(seed(), half), config()).run(counting.clone());
        Runner::new(PctScheduler::new_from_seed(seed(), 4, half), config()).run(counting);
    }));
    let begun = begun.load(Ordering::SeqCst);
    tried.map(|()| begun).map_err(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
        (begun, said.unwrap_or_default())
    })
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    for case in CASES.iter().filter(|case| case.change.is_empty()) {
        let started = Instant::now();
        let tried = run(case, schedules());
        let seconds = started.elapsed().as_secs_f64();
        match tried {
            Ok(count) => println!("{}: {count} schedules, {seconds:.1} s", case.world),
            Err((count, said)) => panic!("{}: schedule {count}: {said}", case.world),
        }
    }
}

#[test]
fn primitives_that_were_changed_are_found() {
    // What a found change prints is of no use.
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for case in CASES.iter().filter(|case| !case.change.is_empty()) {
        let started = Instant::now();
        let name = format!("{}, {}", case.world, case.change);
        match run(case, MOST) {
            Ok(_) => missed.push(name),
            Err((count, said)) => {
                let seconds = started.elapsed().as_secs_f64();
                let said = said.lines().next().unwrap_or_default();
                println!("{name}: found by schedule {count}, {seconds:.2} s: {said}");
            }
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found: {missed:?}");
}
