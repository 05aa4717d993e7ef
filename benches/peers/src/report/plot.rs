//! A picture of one work: a bar for each library, on each server.

use std::fmt::Write;

use crate::peer::PeerId;
use crate::results::WorkResults;
use crate::sample::{Metric, Unit};

const WIDTH: f64 = 820.0;
/// Where bars begin: names stand before.
const LEFT: f64 = 250.0;
/// Where the longest bar ends: its value stands behind.
const RIGHT: f64 = 690.0;
const BAR: f64 = 18.0;
const ROW: f64 = 28.0;
const HEAD: f64 = 66.0;

/// Bars that differ by more than this can't be seen beside each other on an even scale.
const UNEVEN: f64 = 25.0;

/// Writing to a `String` can't fail.
macro_rules! put {
    ($out:expr, $($part:tt)*) => {{
        let _ = writeln!($out, $($part)*);
    }};
}

/// Fewer bars than this on each server are read faster as numbers.
const LEAST_BARS: usize = 3;

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
pub(super) fn render(outcomes: &[&WorkResults]) -> String {
    let Some((work, metric)) =
        outcomes.first().and_then(|first| Some((first.work, first.work.metrics.first()?)))
    else {
        return String::new();
    };
    let rows: usize = outcomes.iter().map(|outcome| shown(outcome).count() + 1).sum();
    let height = HEAD + rows as f64 * ROW + 16.0;
    let scale = Scale::over(outcomes, metric);

    let mut out = String::new();
    put!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\" \
         font-size=\"13\" fill=\"#222\" role=\"img\">\n<title>{}</title>",
        escaped(work.title)
    );
    put!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    put!(out, "<text x=\"16\" y=\"26\" font-size=\"17\">{}</text>", escaped(work.title));
    let better = match metric.unit {
        Unit::PerSecond if metric.id == "rate" => "more is better",
        _ => "less is better",
    };
    let kind = if scale.logarithmic { ", dots on a logarithmic axis" } else { "" };
    put!(
        out,
        "<text x=\"16\" y=\"46\" fill=\"#666\">{}: {better}{kind}; thin line: least to most of all \
         rounds</text>",
        escaped(metric.title)
    );
    let mut y = HEAD;
    for outcome in outcomes {
        put!(out, "<text x=\"16\" y=\"{}\" font-weight=\"bold\">{:?}</text>", y + 15.0, outcome.on);
        y += ROW;
        for peer in shown(outcome) {
            row(&mut out, outcome, peer, metric, &scale, y);
            y += ROW;
        }
    }
    put!(out, "</svg>");
    out
}

fn row(
    out: &mut String,
    outcome: &WorkResults,
    peer: PeerId,
    metric: &Metric,
    scale: &Scale,
    y: f64,
) {
    let (middle, base) = (y + BAR / 2.0, y + BAR / 2.0 + 4.5);
    put!(
        out,
        "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>",
        LEFT - 10.0,
        escaped(peer.name())
    );
    let Some(value) = outcome.figure(peer, metric.id) else {
        let why = outcome.unable.get(&peer).map_or("", String::as_str);
        put!(out, "<text x=\"{}\" y=\"{base}\" fill=\"#888\">{}</text>", LEFT + 4.0, escaped(why));
        return;
    };
    let (end, colour) = (scale.place(value), peer.colour());
    // A logarithmic axis has no zero, so the length of a bar would mean nothing there.
    if scale.logarithmic {
        put!(out, "<path d=\"M{LEFT} {middle}H{RIGHT}\" stroke=\"#ddd\"/>");
        put!(out, "<circle cx=\"{end:.1}\" cy=\"{middle}\" r=\"6\" fill=\"{colour}\"/>");
    } else {
        let width = end - LEFT;
        put!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
        );
    }
    let mut label = end;
    if let Some((least, most)) = extremes(&outcome.values(peer, metric.id)) {
        let (from, to) = (scale.place(least), scale.place(most));
        put!(
            out,
            "<line x1=\"{from:.1}\" y1=\"{middle}\" x2=\"{to:.1}\" y2=\"{middle}\" \
             stroke=\"#222\" stroke-width=\"1.2\"/>"
        );
        label = label.max(to);
    }
    put!(
        out,
        "<text x=\"{:.1}\" y=\"{base}\">{}</text>",
        label + 7.0,
        escaped(&metric.unit.show(value))
    );
}

/// The libraries that there is something to say about.
fn shown(outcome: &WorkResults) -> impl Iterator<Item = PeerId> {
    let has_result = |peer: &PeerId| outcome.has(*peer) || outcome.unable.contains_key(peer);
    outcome.work.peers.iter().copied().filter(has_result)
}

/// From values to places.
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
        let most = extremes(&positive).map_or(1.0, |(_, most)| most);
        let least = extremes(&positive).map_or(1.0, |(least, _)| least);
        // Nothing is a value too, and has no place on a logarithmic scale.
        let nothing = values.len() > positive.len();
        Self { logarithmic: most > least * UNEVEN && !nothing, least: least / 2.0, most }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value / self.least).ln() / (self.most / self.least).ln()
        } else {
            value / self.most
        };
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
