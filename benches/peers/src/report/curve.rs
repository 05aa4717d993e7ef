//! A picture of how something grows: three panels over one axis, both scales logarithmic.

use std::fmt::Write;

use super::plot::escaped;
use crate::growth::{Curve, Point};
use crate::sample::Unit;

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 790.0;
const HEAD: f64 = 66.0;
/// From the top of a panel to the next one's.
const PANEL: f64 = 185.0;
/// How high the line in a panel may rise.
const RISE: f64 = 110.0;

const COLOURS: [&str; 2] = ["#c0392b", "#2e86c1"];

/// Writing to a `String` can't fail.
macro_rules! put {
    ($out:expr, $($part:tt)*) => {{
        let _ = writeln!($out, $($part)*);
    }};
}

type Read = fn(&Point) -> f64;

/// One axis, on all servers.
pub(super) fn render(curves: &[&Curve]) -> String {
    let mut out = String::new();
    let Some(axis) = curves.first().map(|curve| curve.axis) else { return out };
    put!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"Helvetica, Arial, sans-serif\" \
         font-size=\"13\" fill=\"#222\">"
    );
    put!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    put!(out, "<text x=\"16\" y=\"26\" font-size=\"17\">{}</text>", escaped(axis.title));
    let mut x = 16.0;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        put!(out, "<text x=\"{x}\" y=\"46\" fill=\"{colour}\">{:?}</text>", curve.on);
        x += 80.0;
    }
    let titles = axis.titles;
    let panels: [(&str, Unit, Read); 3] = [
        (titles.commands, Unit::Count, |point| point.commands),
        (titles.client, Unit::Seconds, |point| point.client),
        (titles.worst, Unit::Seconds, |point| point.worst),
    ];
    for (number, (title, unit, read)) in panels.into_iter().enumerate() {
        panel(&mut out, curves, HEAD + number as f64 * PANEL, title, unit, read);
    }
    put!(out, "</svg>");
    out
}

fn panel(out: &mut String, curves: &[&Curve], top: f64, title: &str, unit: Unit, read: Read) {
    let base = top + 30.0 + RISE;
    put!(out, "<text x=\"16\" y=\"{}\" fill=\"#666\">{}</text>", top + 14.0, escaped(title));
    put!(out, "<path d=\"M{LEFT} {base}H{RIGHT}\" stroke=\"#aaa\"/>");
    let values = || curves.iter().flat_map(|curve| curve.points.iter().map(|(_, it)| read(it)));
    let rise = Log::over(values(), RISE);
    let counts = curves.iter().flat_map(|curve| curve.points.iter().map(|it| it.0 as f64));
    let along = Log::over(counts, RIGHT - LEFT - 40.0);
    for (number, (curve, colour)) in curves.iter().zip(COLOURS).enumerate() {
        let mut line = String::new();
        for (count, point) in &curve.points {
            let (x, y) = (LEFT + along.place(*count as f64), base - 6.0 - rise.place(read(point)));
            let step = if line.is_empty() { 'M' } else { 'L' };
            let _ = write!(line, "{step}{x:.1} {y:.1}");
            put!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            // Values of the second server stand below its line, those of the first above.
            let beside = if number == 0 { y - 7.0 } else { y + 15.0 };
            put!(
                out,
                "<text x=\"{x:.1}\" y=\"{beside:.1}\" font-size=\"11\" fill=\"{colour}\">{}</text>",
                escaped(&unit.show(read(point)))
            );
            if number == 0 {
                put!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#666\">{count}</text>",
                    base + 14.0
                );
            }
        }
        put!(out, "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    }
}

/// A logarithmic scale. Nothing has the place of the least.
struct Log {
    least: f64,
    most: f64,
    length: f64,
}

impl Log {
    fn over(values: impl Iterator<Item = f64>, length: f64) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (least, most) = (least.min(value), most.max(value));
        }
        Self { least, most, length }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value.max(self.least) / self.least).ln() / (self.most / self.least).ln();
        if part.is_finite() { part.clamp(0.0, 1.0) * self.length } else { 0.0 }
    }
}
