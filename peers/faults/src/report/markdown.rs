//! Results for people: `docs/verify/results.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::contender::Contender;
use crate::figures::Figures;
use crate::install::Installed;
use crate::options::Options;
use crate::{Outcome, Outcomes};

/// Writing to a `String` can't fail.
macro_rules! line {
    ($out:expr $(, $part:expr)* $(,)?) => {{
        let _ = writeln!($out $(, $part)*);
    }};
}

pub(super) fn render(
    options: &Options,
    installed: &Installed,
    outcomes: &Outcomes,
    took: Duration,
) -> String {
    let mut out = String::new();
    head(&mut out, options, took);
    line!(out, "\n## Libraries\n\n| library | version | set-up |\n|---|---|---|");
    for &contender in &options.contenders {
        let (title, set_up) = (contender.title(), contender.set_up());
        line!(out, "| {title} | {} | {set_up} |", installed.version(contender));
    }
    overview(&mut out, options, outcomes);
    for &fault in &options.faults {
        line!(out, "\n## {}\n\n{}\n", fault.title(), fault.what());
        line!(out, "![{}]({}.svg)\n", fault.title(), fault.id());
        let next = match fault.has_moments() {
            true => "fault to next holder: middle, longest",
            false => "release to next holder: middle, longest",
        };
        line!(
            out,
            "| library | holds | bodies at once | of these untold | a mutex? | lost updates | lost, \
             fenced | never returned | crashed | calls failed | keys left | longest wait | {next} |"
        );
        line!(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|");
        for &contender in &options.contenders {
            if let Some(outcome) = outcomes.get(&(fault, contender)) {
                row(&mut out, contender, outcome);
            }
        }
        let outside: Vec<String> = options
            .contenders
            .iter()
            .filter_map(|it| {
                let why = it.promises_nothing(fault)?;
                Some(format!("{}: {why}", it.title()))
            })
            .collect();
        if !outside.is_empty() {
            line!(out, "\nOutside of what a library promises:\n");
            outside.iter().for_each(|why| line!(out, "- {why}."));
        }
    }
    out
}

fn head(out: &mut String, options: &Options, took: Duration) {
    let server = testbed::ServerBinary::any();
    let (cores, load) = (std::thread::available_parallelism().map_or(0, Into::into), load());
    line!(
        out,
        "# Under the same faults\n\n\
         One workload under one set of faults, against this library and eight others. Four \
         processes take one lock in turn. A body reads two counters, works, asks its library \
         whether the lock is still held, works for another third of its time, and writes each \
         value plus one. One counter trusts the lock, and the other one compares fencing numbers. \
         Each round of each cell has separate servers and processes. Every worker speaks the same \
         line protocol (`peers/faults/src/worker/mod.rs`), so one driver makes the faults, and \
         one judge reads the histories.\n\n\
         - **bodies at once**: holds during which another hold began.\n\
         - **untold**: of these, holds whose callers both got no error.\n\
         - **a mutex?**: in how many of all rounds the holds without an error fit into one order \
         of a mutex, by the linearizability tester of `stateright`.\n\
         - **lost updates**: writes of the first counter that another write overwrote.\n\
         - **never returned**: calls that were still open 7 s after the last one began.\n\
         - **crashed**: processes that ended in the middle of a round.\n\
         - **keys left**: keys on the servers 1.3 s after the last call, when every lease is \
         over, with the time for which they remain.\n\n\
         The ttl is short. If the load is far above the number of cores, a process may stand \
         still for that long: a pause that no fault here caused.\n\n\
         If a library has such options, the ttl is 1 s, the wait 3 s, and one command may take \
         400 ms. Figures are sums of all rounds, and times are those of all rounds together.\n\n\
         | | |\n|---|---|"
    );
    line!(out, "| command | `{}` |", options.command);
    line!(
        out,
        "| rounds | {}, {} cells at a time, {} min |",
        options.rounds,
        options.beside,
        took.as_secs().div_ceil(60)
    );
    line!(out, "| machine | {cores} cores, load {load} at the end |");
    line!(out, "| server | {server} |");
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// One line for each library: what its callers were not told.
fn overview(out: &mut String, options: &Options, outcomes: &Outcomes) {
    line!(
        out,
        "\n## Overview\n\n\
         Bodies at once that no caller was told of / lost updates / calls that never returned. In italics \
         where the fault is outside of what the library promises; `0` where all three are none.\n"
    );
    let titles = options.faults.iter().map(|fault| fault.id()).collect::<Vec<_>>();
    line!(out, "| library | {} |", titles.join(" | "));
    line!(out, "|---|{}", "---|".repeat(titles.len()));
    for &contender in &options.contenders {
        let cells = options.faults.iter().map(|&fault| {
            let Some(outcome) = outcomes.get(&(fault, contender)) else { return String::new() };
            if outcome.rounds.is_empty() {
                return "not run".to_owned();
            }
            let bad = [
                sum(outcome, |it| it.untold),
                sum(outcome, |it| it.lost_plain),
                sum(outcome, |it| it.hung),
            ];
            let shown = match bad {
                [0, 0, 0] => "0".to_owned(),
                _ => bad.map(|count| count.to_string()).join(" / "),
            };
            match contender.promises_nothing(fault) {
                Some(_) => format!("*{shown}*"),
                None => shown,
            }
        });
        line!(out, "| {} | {} |", contender.title(), cells.collect::<Vec<_>>().join(" | "));
    }
}

pub(super) fn sum(outcome: &Outcome, figure: fn(&Figures) -> u64) -> u64 {
    outcome.rounds.iter().map(figure).sum()
}

/// All times from a fault to the next holder, in order.
pub(super) fn next_holders(outcome: &Outcome) -> Vec<Duration> {
    let mut all: Vec<Duration> = outcome.rounds.iter().flat_map(|it| it.next.clone()).collect();
    all.sort();
    all
}

fn row(out: &mut String, contender: Contender, outcome: &Outcome) {
    let title = contender.title();
    if outcome.rounds.is_empty() {
        let why = outcome.unable.clone().unwrap_or_default().replace('|', "/");
        line!(out, "| {title} | {why} | | | | | | | | | | | |");
        return;
    }
    let rounds = outcome.rounds.len();
    let fenced = match outcome.rounds.iter().filter_map(|it| it.lost_fenced).reduce(|a, b| a + b) {
        Some(lost) => lost.to_string(),
        None => "no fences".to_owned(),
    };
    let next = next_holders(outcome);
    let middle = next.get(next.len() / 2).copied();
    let wait = outcome.rounds.iter().filter_map(|it| it.longest_wait).max();
    line!(
        out,
        "| {title} | {} | {} | {} | {} of {rounds} | {} | {fenced} | {} | {} | {} | {} | {} | {}, {} |",
        sum(outcome, |it| it.holds),
        sum(outcome, |it| it.overlaps),
        sum(outcome, |it| it.untold),
        outcome.rounds.iter().filter(|it| it.linearizable).count(),
        sum(outcome, |it| it.lost_plain),
        sum(outcome, |it| it.hung),
        sum(outcome, |it| it.crashed),
        sum(outcome, |it| it.failed),
        keys_left(outcome),
        shown(wait),
        shown(middle),
        shown(next.last().copied()),
    );
}

fn keys_left(outcome: &Outcome) -> String {
    let mut keys: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for (key, left) in outcome.rounds.iter().flat_map(|it| &it.left) {
        // What is random in the name of a key is left out.
        let name =
            key.split_once("rl1.").map_or_else(|| key.clone(), |(before, _)| format!("{before}…"));
        let entry = keys.entry(name).or_default();
        *entry = (entry.0 + 1, entry.1.max(*left));
        if *left < 0 {
            entry.1 = -1;
        }
    }
    if keys.is_empty() {
        return "none".to_owned();
    }
    let keys = keys.into_iter().map(|(key, (count, left))| match left {
        ..0 => format!("{count} x `{key}` for ever"),
        _ => format!("{count} x `{key}` for {:.0} s", left as f64 / 1_000.0),
    });
    keys.collect::<Vec<_>>().join(", ")
}

pub(super) fn shown(time: Option<Duration>) -> String {
    match time {
        None => "never".to_owned(),
        Some(time) if time >= Duration::from_secs(1) => format!("{:.1} s", time.as_secs_f64()),
        Some(time) => format!("{:.0} ms", (time.as_secs_f64() * 1_000.0).ceil()),
    }
}
