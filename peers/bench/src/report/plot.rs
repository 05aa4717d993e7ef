//! A picture of one work: a bar for each library, on each server, over an axis with the unit.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::peer::PeerId;
use crate::results::WorkResults;
use crate::sample::{Metric, Unit};

const WIDTH: u32 = 820;
/// Where bars begin: names stand before.
const LEFT: u32 = 240;
/// What is left for the value behind the longest bar.
const RIGHT: u32 = 100;
const ROW: u32 = 28;
const HEAD: u32 = 40;
/// For the numbers of the axis, and what they are.
const FOOT: u32 = 64;

/// Bars that differ by more than this can't be seen beside each other on an even scale.
const UNEVEN: f64 = 25.0;

/// Fewer bars than this on each server are read faster as numbers.
const LEAST_BARS: usize = 3;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Whether a picture says more than the table: there are bars enough, and none of them is negative.
pub(super) fn is_worth_it(outcomes: &[&WorkResults]) -> bool {
    outcomes.iter().any(|outcome| {
        let Some(metric) = outcome.work.metrics.first() else { return false };
        let figures: Vec<f64> =
            shown(outcome).filter_map(|peer| outcome.figure(peer, metric.id)).collect();
        figures.len() >= LEAST_BARS && figures.iter().all(|figure| *figure >= 0.0)
    })
}

/// The least and the most.
pub(super) fn extremes(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

/// The first metric of the work, on all servers.
pub(super) fn render(outcomes: &[&WorkResults]) -> Result<String> {
    let Some((work, metric)) =
        outcomes.first().and_then(|first| Some((first.work, first.work.metrics.first()?)))
    else {
        return Ok(String::new());
    };
    let rows: usize = outcomes.iter().map(|outcome| shown(outcome).count() + 1).sum();
    let height = HEAD + u32::try_from(rows)? * ROW + FOOT;
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let title = ("sans-serif", 21).into_text_style(&area);
        area.draw(&Text::new(work.title, (16, 14), title))?;
        let scale = Scale::over(outcomes, metric);
        let mut chart = ChartBuilder::on(&area);
        chart.margin_top(HEAD).margin_right(RIGHT).x_label_area_size(FOOT).margin_left(LEFT);
        let rows = 0.0..rows as f64;
        if scale.logarithmic {
            let axis = (scale.least..scale.most).log_scale();
            draw(&area, chart.build_cartesian_2d(axis, rows)?, outcomes, metric, &scale)?;
        } else {
            draw(
                &area,
                chart.build_cartesian_2d(0.0..scale.most, rows)?,
                outcomes,
                metric,
                &scale,
            )?;
        }
        area.present()?;
    }
    Ok(out.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(
        '>',
        &format!(">\n<title>{}</title>", escaped(work.title)),
        1,
    ))
}

fn draw<X>(
    area: &Area<'_>,
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
    outcomes: &[&WorkResults],
    metric: &Metric,
    scale: &Scale,
) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let better = match metric.unit {
        Unit::PerSecond if metric.id == "rate" => "more is better",
        _ => "less is better",
    };
    let axis = if scale.logarithmic { ", logarithmic" } else { "" };
    let shown_value = |value: &f64| metric.unit.show(*value);
    let mut mesh = chart.configure_mesh();
    mesh.disable_y_mesh().disable_y_axis().x_labels(6).light_line_style(TRANSPARENT);
    mesh.bold_line_style(RGBColor(221, 221, 221)).label_style(("sans-serif", 16));
    mesh.x_label_formatter(&shown_value);
    mesh.x_desc(format!(
        "{} ({better}{axis}); thin line: least to most of all rounds",
        metric.title
    ));
    mesh.draw()?;
    let mut row = outcomes.iter().map(|outcome| shown(outcome).count() + 1).sum::<usize>() as f64;
    for outcome in outcomes {
        row -= 1.0;
        name(area, &chart, &format!("{:?}", outcome.on), scale, row);
        for peer in shown(outcome) {
            row -= 1.0;
            name(area, &chart, peer.name(), scale, row);
            bar(&mut chart, outcome, peer, metric, scale, row)?;
        }
    }
    Ok(())
}

/// The name before a row.
fn name<X: Ranged<ValueType = f64>>(
    area: &Area<'_>,
    chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
    name: &str,
    scale: &Scale,
    row: f64,
) {
    let (_, y) = chart.plotting_area().map_coordinate(&(scale.least, row + 0.5));
    let style = ("sans-serif", 16).into_text_style(area).pos(Pos::new(HPos::Right, VPos::Center));
    let _ = area.draw(&Text::new(name.to_owned(), (LEFT as i32 - 8, y), style));
}

fn bar<X: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
    outcome: &WorkResults,
    peer: PeerId,
    metric: &Metric,
    scale: &Scale,
    row: f64,
) -> Result<()> {
    let middle = row + 0.5;
    let beside = |x: f64, text: String, colour: RGBColor| {
        let mut style = TextStyle::from(("sans-serif", 16));
        style.pos = Pos::new(HPos::Left, VPos::Center);
        style.color = colour.to_backend_color();
        EmptyElement::at((x, middle)) + Text::new(text, (8, 0), style)
    };
    let Some(value) = outcome.figure(peer, metric.id) else {
        let why = outcome.unable.get(&peer).cloned().unwrap_or_default();
        let grey = RGBColor(136, 136, 136);
        chart.plotting_area().draw(&beside(scale.least, why, grey))?;
        return Ok(());
    };
    let colour = colour(peer.colour()).ok_or_else(|| anyhow!("no colour: {}", peer.colour()))?;
    // A logarithmic axis has no zero, so the length of a bar would mean nothing there.
    if scale.logarithmic {
        chart.plotting_area().draw(&Circle::new((value, middle), 6, colour.filled()))?;
    } else {
        let corners = [(0.0, row + 0.2), (value, row + 0.8)];
        chart.plotting_area().draw(&Rectangle::new(corners, colour.filled()))?;
    }
    let (least, most) = extremes(&outcome.values(peer, metric.id)).unwrap_or((value, value));
    chart.plotting_area().draw(&PathElement::new([(least, middle), (most, middle)], BLACK))?;
    chart.plotting_area().draw(&beside(most.max(value), metric.unit.show(value), BLACK))?;
    Ok(())
}

/// `#c0392b`.
fn colour(text: &str) -> Option<RGBColor> {
    let part = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    Some(RGBColor(part(1)?, part(3)?, part(5)?))
}

/// The libraries that there is something to say about.
fn shown(outcome: &WorkResults) -> impl Iterator<Item = PeerId> {
    let has_result = |peer: &PeerId| outcome.has(*peer) || outcome.unable.contains_key(peer);
    outcome.work.peers.iter().copied().filter(has_result)
}

/// The range of the axis.
struct Scale {
    logarithmic: bool,
    least: f64,
    most: f64,
}

impl Scale {
    fn over(outcomes: &[&WorkResults], metric: &Metric) -> Self {
        let mut values = Vec::new();
        for outcome in outcomes {
            for peer in shown(outcome) {
                values
                    .extend(outcome.values(peer, metric.id).into_iter().filter(|v| v.is_finite()));
            }
        }
        let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        let (least, most) = extremes(&positive).unwrap_or((0.5, 1.0));
        // Nothing is a value too, and has no place on a logarithmic scale.
        let nothing = values.len() > positive.len();
        let logarithmic = most > least * UNEVEN && !nothing;
        Self { logarithmic, least: if logarithmic { least / 2.0 } else { 0.0 }, most: most * 1.02 }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
