//! Walks over all small histories: a base history of each scenario, and all that differ from it in what
//! happens to at most so many of its first messages.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::histories_of_faults::shown_at_once;
use super::small_histories::{scenarios, two_and_two};
use super::{THREADS, number};
use crate::domain::planted::{self, PlantedFault};
use crate::simulation::deviation::{Deviation, MessageSort};
use crate::simulation::plan::HistoryPlan;
use crate::simulation::run;

/// How many of the first messages of a history may deviate.
const MESSAGES: usize = 30;

type Deviations = Vec<(usize, Deviation)>;

/// What is walked over: all scenarios, or the one that `SIMULATE_SCENARIO` names. And how deep, in the ordinary
/// test run: those that only show a planted fault at once are not gone on from there.
fn wanted_scenarios() -> impl Iterator<Item = (&'static str, HistoryPlan, usize)> {
    let wanted = std::env::var("SIMULATE_SCENARIO").ok();
    let is_wanted = move |name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
    let walked = scenarios().into_iter().map(|(name, plan)| (name, plan, 1));
    let shown = shown_at_once().into_iter().map(|(name, plan)| (name, plan, 0));
    walked.chain(shown).filter(move |(name, ..)| is_wanted(name))
}

/// What a walk has seen.
#[derive(Default)]
struct Walk {
    histories: usize,
    /// Histories that are unlike all others, by their hash.
    different: HashSet<u64>,
    /// The first history that violated something, how deep it lies, and what was violated.
    found: Option<(usize, Deviations, String)>,
    is_whole: bool,
}

/// Walks to a depth, level by level. A history that is the same as another one is not gone on from.
fn walk(plan: &HistoryPlan, depth: usize, end: Instant, fault: Option<PlantedFault>) -> Walk {
    let mut walk = Walk { is_whole: true, ..Walk::default() };
    let mut level = vec![Deviations::new()];
    for reached in 0..=depth {
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    planted::plant(fault);
                    while Instant::now() < end {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(deviations) = level.get(at) else { return };
                        let plan = HistoryPlan { deviations: deviations.clone(), ..plan.clone() };
                        let ran = run(&plan, false);
                        results.lock().unwrap().push((at, ran));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap();
        results.sort_by_key(|(at, _)| *at);
        walk.histories += results.len();
        walk.is_whole &= results.len() == level.len();
        let mut below = Vec::new();
        for (at, ran) in results {
            if let Some(what) = ran.violation {
                walk.found.get_or_insert_with(|| (reached, level[at].clone(), what));
            } else if walk.different.insert(ran.hash) && reached < depth {
                below.extend(with_one_more(&level[at], &ran.messages));
            }
        }
        if walk.found.is_some() || !walk.is_whole {
            return walk;
        }
        level = below;
    }
    walk
}

/// The same deviations, with one more behind them.
fn with_one_more(before: &Deviations, messages: &[MessageSort]) -> Vec<Deviations> {
    let first = before.last().map_or(0, |(at, _)| at + 1);
    let messages = messages.iter().enumerate().take(MESSAGES).skip(first);
    let each = |(at, sort): (usize, &MessageSort)| {
        let with = |deviation: &Deviation| [&before[..], &[(at, *deviation)]].concat();
        sort.deviations().iter().map(with).collect::<Vec<_>>()
    };
    messages.flat_map(each).collect()
}

/// With `SIMULATE_DEPTH` it walks so deep. At depth 0 it tells the history of each scenario.
#[test]
fn all_small_histories_keep_every_promise() {
    let asked = number("SIMULATE_DEPTH").map(|depth| depth as usize);
    let end = Instant::now() + Duration::from_secs(number("SIMULATE_SECONDS").unwrap_or(300));
    let (mut failed, mut all) = (Vec::new(), 0);
    for (name, plan, ordinary) in wanted_scenarios() {
        let depth = asked.unwrap_or(ordinary);
        if asked == Some(0) {
            println!("{}", run(&plan, true).lines);
        }
        let started = Instant::now();
        let walk = walk(&plan, depth, end, None);
        let seconds = started.elapsed().as_secs_f64();
        let (histories, different) = (walk.histories, walk.different.len());
        let whole = if walk.is_whole { "all" } else { "not all" };
        println!(
            "{name}: {whole} histories to depth {depth}: {histories}, {different} unlike, {seconds:.1} s"
        );
        all += histories;
        failed.extend(walk.found.map(|(_, deviations, what)| {
            let ran = run(&HistoryPlan { deviations: deviations.clone(), ..plan }, true);
            format!("{}{name}: {deviations:?}: {what}", ran.lines)
        }));
    }
    println!("{all} histories, none violates: {}", failed.is_empty());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What happens to a message of one process is no excuse for another one, whose leases are not renewed.
#[test]
fn a_message_that_deviates_excuses_its_own_process_alone() {
    let all = scenarios();
    let (_, renewed) = all.iter().find(|(name, _)| *name == "renewed").unwrap();
    planted::plant(Some(PlantedFault::NotRenewed));
    let found = (0..6).filter_map(|at| {
        let deviations = vec![(at, Deviation::Lost)];
        run(&HistoryPlan { deviations, ..renewed.clone() }, false).violation
    });
    let found: HashSet<_> = found.collect();
    planted::plant(None);
    for process in 0..2 {
        let what = format!("a lease of p{process} ended, and nothing was wrong");
        assert!(found.contains(&what), "{found:?}");
    }
}

/// With `SIMULATE_DEPTH`, how deep each planted fault lies; without it, that one is found.
#[test]
fn planted_faults_are_found_by_few_deviations() {
    let Some(depth) = number("SIMULATE_DEPTH") else {
        let end = Instant::now() + Duration::from_secs(120);
        let fault = Some(PlantedFault::NoTombstone);
        let walk = walk(&two_and_two(|call| call.polls = Some(2)), 1, end, fault);
        return assert!(walk.found.is_some(), "{} histories", walk.histories);
    };
    for fault in super::wanted_faults() {
        let started = Instant::now();
        let end = started + Duration::from_secs(number("SIMULATE_SECONDS").unwrap_or(60));
        let mut histories = 0;
        let found = wanted_scenarios().find_map(|(name, plan, _)| {
            let walk = walk(&plan, depth as usize, end, Some(fault));
            histories += walk.histories;
            walk.found.map(|(depth, _, what)| format!("at depth {depth}, {name}: {what}"))
        });
        let seconds = started.elapsed().as_secs_f64();
        let found = found.as_deref().unwrap_or("not found");
        println!("{fault:?}: {histories} histories, {seconds:.1} s: {found}");
    }
}
