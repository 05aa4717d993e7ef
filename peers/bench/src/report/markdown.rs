//! Results for people: `docs/bench/results.md`.

use std::fmt::Write;

use super::{by_axis, by_work, plot};
use crate::growth::Curve;
use crate::results::WorkResults;
use crate::sample::Unit;
use crate::setting::Setting;

/// Writing to a `String` can't fail.
macro_rules! line {
    ($out:expr $(, $part:expr)* $(,)?) => {{
        let _ = writeln!($out $(, $part)*);
    }};
}

pub(super) fn render(outcomes: &[WorkResults], curves: &[Curve], setting: &Setting) -> String {
    let mut out = String::new();
    head(&mut out, setting);
    goals(&mut out, outcomes);
    for same in by_work(outcomes) {
        let Some(work) = same.first().map(|outcome| outcome.work) else { continue };
        line!(out, "\n## {}\n\n{}", work.title, work.what);
        if plot::is_worth_it(&same) {
            line!(out, "\n![{}]({}.svg)", work.title, work.id);
        }
        for outcome in same {
            figures(&mut out, outcome);
        }
    }
    for same in by_axis(curves) {
        let Some(axis) = same.first().map(|curve| curve.axis) else { continue };
        line!(out, "\n## How cost grows: {}\n\n{}", axis.title, axis.what);
        for curve in same {
            growth(&mut out, curve);
        }
    }
    out
}

fn growth(out: &mut String, curve: &Curve) {
    let titles = curve.axis.titles;
    let columns = [titles.commands, titles.client, titles.worst].join(" | ");
    line!(out, "\n| {:?}: how many | {columns} |\n|---|---|---|---|", curve.on);
    for (count, point) in &curve.points {
        let (client, worst) = (Unit::Seconds.show(point.client), Unit::Seconds.show(point.worst));
        line!(out, "| {count} | {:.4} | {client} | {worst} |", point.commands);
    }
}

fn head(out: &mut String, setting: &Setting) {
    line!(
        out,
        "# Side by side\n\n\
         All libraries take turns in one run, round by round, so that the machine's good and bad \
         minutes affect all of them. A figure is the median of all rounds, with the least and the \
         most in brackets. A ratio is taken within each round, and its median is shown. \
         `results.json` has every value.\n"
    );
    line!(out, "| | |\n|---|---|");
    line!(out, "| command | `{}` |", setting.command);
    line!(out, "| date | {} |", setting.date);
    line!(out, "| machine | {} x {}, {} |", setting.cores, setting.processor, setting.system);
    let (before, after) = setting.load;
    line!(out, "| load | {before:.1} before, {after:.1} at the end |");
    line!(out, "| servers, on loopback | {} |", setting.servers.join(", "));
    line!(out, "| libraries | {} |", setting.libraries.join(", "));
    line!(out, "| compiler, runtime | {}; Tokio with two workers |", setting.compiler);
    let busy = setting.cores as f64 * 1.5;
    if before > busy || after > busy {
        line!(
            out,
            "\nThe machine had other work meanwhile: a load above {} for {} cores. Times are longer \
             and rates lower than on a quiet one, for everybody; ratios are what to read.",
            before.max(after).floor(),
            setting.cores
        );
    }
}

fn goals(out: &mut String, outcomes: &[WorkResults]) {
    line!(
        out,
        "\n## Goals\n\nTwo runs of the same program differ by up to 10 %, so a goal that is \
         missed by less counts as reached.\n"
    );
    line!(out, "| work | server | goal | reached | |\n|---|---|---|---|---|");
    for outcome in outcomes {
        for goal in outcome.goals() {
            let Some(figure) = outcome.reached(goal) else { continue };
            let verdict = if goal.bound.is_met_by(figure) { "yes" } else { "**no**" };
            line!(
                out,
                "| {} | {:?} | {} | {} | {verdict} |",
                outcome.work.title,
                outcome.on,
                goal.describe(outcome.work.metrics),
                goal.show(outcome.work.metrics, figure)
            );
        }
    }
}

fn figures(out: &mut String, outcome: &WorkResults) {
    let work = outcome.work;
    let titles: Vec<&str> = work.metrics.iter().map(|metric| metric.title).collect();
    line!(out, "\n| {:?} | {} |", outcome.on, titles.join(" | "));
    line!(out, "|---|{}", "---|".repeat(titles.len()));
    for &peer in work.peers {
        if !outcome.has(peer) {
            if let Some(why) = outcome.unable.get(&peer) {
                let why = why.replace('|', "/").replace('\n', " ");
                line!(out, "| {peer} | {why} |{}", " |".repeat(titles.len() - 1));
            }
            continue;
        }
        let values = work.metrics.iter().map(|metric| {
            let all = outcome.values(peer, metric.id);
            let show = |value| metric.unit.show(value);
            match (outcome.figure(peer, metric.id), plot::extremes(&all)) {
                (Some(middle), Some((least, most))) => {
                    format!("**{}** ({} – {})", show(middle), show(least), show(most))
                }
                _ => String::new(),
            }
        });
        line!(out, "| {peer} | {} |", values.collect::<Vec<_>>().join(" | "));
    }
}
