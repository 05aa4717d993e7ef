//! One picture for each fault.

use std::time::Duration;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::markdown::{next_holders, shown, sum};
use crate::contender::Contender;
use crate::fault::Fault;
use crate::{Outcome, Outcomes};

const WIDTH: u32 = 1_060;
const HEAD: u32 = 70;
const ROW: u32 = 44;
const FOOT: u32 = 56;
/// For the names.
const LEFT: i32 = 200;
/// Where the second half begins.
const MIDDLE: i32 = 610;
/// How long the longest bar is.
const BAR: f64 = 330.0;

const UNTOLD: RGBColor = RGBColor(192, 57, 43);
const LOST: RGBColor = RGBColor(185, 119, 14);
const TIME: RGBColor = RGBColor(46, 134, 193);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn render(fault: Fault, outcomes: &Outcomes) -> Result<String> {
    let rows: Vec<(Contender, &Outcome)> = outcomes
        .iter()
        .filter(|((of, _), _)| *of == fault)
        .map(|((_, contender), outcome)| (*contender, outcome))
        .collect();
    let height = HEAD + u32::try_from(rows.len())? * ROW + FOOT;
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        text(&area, fault.title(), (16, 12), 21, BLACK, HPos::Left)?;
        let most = rows.iter().flat_map(|(_, outcome)| bad(outcome)).max().unwrap_or(0);
        for (index, (contender, outcome)) in rows.iter().enumerate() {
            let y = (HEAD + u32::try_from(index)? * ROW) as i32;
            row(&area, *contender, outcome, most, y)?;
        }
        legend(&area, fault, height as i32 - FOOT as i32)?;
        area.present()?;
    }
    let title = format!(">\n<title>{}</title>", fault.title());
    Ok(out.replacen("<svg ", "<svg role=\"img\" ", 1).replacen('>', &title, 1))
}

/// Overlaps that no caller was told of, and lost updates.
fn bad(outcome: &Outcome) -> [u64; 2] {
    [sum(outcome, |it| it.untold), sum(outcome, |it| it.lost_plain)]
}

fn row(area: &Area<'_>, contender: Contender, outcome: &Outcome, most: u64, y: i32) -> Result<()> {
    let middle = y + ROW as i32 / 2;
    text(area, contender.title(), (LEFT - 10, middle - 9), 16, BLACK, HPos::Right)?;
    if outcome.rounds.is_empty() {
        return text(area, "not run", (LEFT, middle - 9), 16, BLACK, HPos::Left);
    }
    for (index, (count, colour)) in bad(outcome).into_iter().zip([UNTOLD, LOST]).enumerate() {
        let top = y + 4 + 18 * index as i32;
        let length = BAR * count as f64 / most.max(1) as f64;
        bar(area, LEFT, top, length, colour)?;
        text(area, &count.to_string(), (LEFT + length as i32 + 6, top), 14, BLACK, HPos::Left)?;
    }
    let next = next_holders(outcome);
    let (half, longest) = (next.get(next.len() / 2).copied(), next.last().copied());
    let length = longest.map_or(0.0, on_scale);
    bar(area, MIDDLE, middle - 7, half.map_or(0.0, on_scale), TIME)?;
    let line = [(MIDDLE, middle), (MIDDLE + length as i32, middle)];
    area.draw(&PathElement::new(line, BLACK))?;
    let said = format!("{}, {}", shown(half), shown(longest));
    text(area, &said, (MIDDLE + length as i32 + 6, middle - 8), 14, BLACK, HPos::Left)
}

/// The axis is logarithmic, from 1 ms to 10 s.
fn on_scale(time: Duration) -> f64 {
    let decades = (time.as_secs_f64() * 1_000.0).max(1.0).log10().min(4.0);
    decades / 4.0 * BAR
}

fn legend(area: &Area<'_>, fault: Fault, y: i32) -> Result<()> {
    for (index, (what, colour)) in [
        ("bodies at once that no caller was told of, all rounds", UNTOLD),
        ("lost updates, without fences, all rounds", LOST),
    ]
    .into_iter()
    .enumerate()
    {
        let top = y + 4 + 20 * index as i32;
        bar(area, LEFT, top, 12.0, colour)?;
        text(area, what, (LEFT + 18, top), 14, BLACK, HPos::Left)?;
    }
    let from = if fault.has_moments() { "fault" } else { "release" };
    bar(area, MIDDLE, y + 4, 12.0, TIME)?;
    let what = format!("from {from} to next holder, middle");
    text(area, &what, (MIDDLE + 18, y + 4), 14, BLACK, HPos::Left)?;
    let what = "thin line: the longest; logarithmic, 1 ms to 10 s";
    text(area, what, (MIDDLE + 18, y + 24), 14, BLACK, HPos::Left)
}

fn bar(area: &Area<'_>, x: i32, y: i32, length: f64, colour: RGBColor) -> Result<()> {
    let corners = [(x, y), (x + length as i32, y + 14)];
    Ok(area.draw(&Rectangle::new(corners, colour.filled()))?)
}

fn text(
    area: &Area<'_>,
    what: &str,
    at: (i32, i32),
    size: u32,
    colour: RGBColor,
    side: HPos,
) -> Result<()> {
    let style = ("sans-serif", size).into_text_style(area).color(&colour);
    let style = style.pos(Pos::new(side, VPos::Top));
    Ok(area.draw(&Text::new(what.to_owned(), at, style))?)
}
