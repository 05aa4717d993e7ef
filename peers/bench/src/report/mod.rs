//! The reports of the results, in several forms.

mod json;
mod markdown;
mod plot;
pub(crate) mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::growth::Curve;
use crate::results::WorkResults;
use crate::setting::Setting;

/// Writes everything that `docs/bench` holds.
pub(crate) fn write(
    dir: &Path,
    outcomes: &[WorkResults],
    curves: &[Curve],
    setting: &Setting,
) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("{} can't be made", dir.display()))?;
    let put = |name: &str, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
    };
    put("results.json", json::render(outcomes, curves, setting)?)?;
    put("results.md", markdown::render(outcomes, curves, setting))?;
    draw(dir, outcomes)
}

/// Draws the plots of results that were written before.
pub(crate) fn draw_again(dir: &Path) -> Result<()> {
    let path = dir.join("results.json");
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    draw(dir, &json::read(&text)?)
}

fn draw(dir: &Path, outcomes: &[WorkResults]) -> Result<()> {
    for same in by_work(outcomes) {
        let Some(work) = same.first().map(|outcome| outcome.work) else { continue };
        if plot::is_worth_it(&same) {
            let path = dir.join(format!("{}.svg", work.id));
            fs::write(&path, plot::render(&same)?)
                .with_context(|| format!("{} can't be written", path.display()))?;
        }
    }
    Ok(())
}

/// The curves of each axis, of all servers together.
fn by_axis(curves: &[Curve]) -> Vec<Vec<&Curve>> {
    let mut groups: Vec<Vec<&Curve>> = Vec::new();
    for curve in curves {
        let is_same = |group: &&mut Vec<&Curve>| group.iter().any(|it| it.axis.id == curve.axis.id);
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(curve),
            None => groups.push(vec![curve]),
        }
    }
    groups
}

/// The results of each work, of all servers together.
fn by_work(outcomes: &[WorkResults]) -> Vec<Vec<&WorkResults>> {
    let mut groups: Vec<Vec<&WorkResults>> = Vec::new();
    for outcome in outcomes {
        let of_it = groups
            .iter_mut()
            .find(|group| group.first().is_some_and(|first| first.work.id == outcome.work.id));
        match of_it {
            Some(group) => group.push(outcome),
            None => groups.push(vec![outcome]),
        }
    }
    groups
}
