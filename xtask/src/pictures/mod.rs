//! The pictures of docs/pictures whose data are lanes of time, a list of questions, or states.

mod data;

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use crate::cargo::root;

/// What happens to some calls in the course of time.
struct Lanes {
    file: &'static str,
    title: &'static str,
    /// What the picture shows, for readers who do not see it.
    about: &'static str,
    lanes: &'static [Lane],
}

struct Lane {
    name: &'static str,
    bars: &'static [Bar],
    /// A text, and where it begins.
    end: (f64, &'static str),
}

/// Times go from 0 to 100.
struct Bar {
    from: f64,
    to: f64,
    look: Look,
    text: &'static str,
}

#[derive(Clone, Copy)]
enum Look {
    Waits,
    Runs,
    Kept,
    Lease,
    Fails,
}

impl Look {
    fn class(self) -> &'static str {
        match self {
            Self::Waits => "y",
            Self::Runs => "g",
            Self::Kept => "n",
            Self::Lease => "u",
            Self::Fails => "r",
        }
    }
}

/// Questions with their answer if it is yes; the last answer is that of no to all.
struct Questions {
    file: &'static str,
    title: &'static str,
    about: &'static str,
    questions: &'static [(&'static str, &'static str, &'static str)],
    last: (&'static str, &'static str),
}

/// States, and what leads from one to another.
struct States {
    file: &'static str,
    title: &'static str,
    about: &'static str,
    /// Around states from which the same moves lead: left, top, width, height.
    frame: (u32, u32, u32, u32),
    states: &'static [State],
    moves: &'static [Move],
}

struct State {
    /// The left upper corner.
    at: (u32, u32),
    look: Look,
    name: &'static str,
    below: &'static str,
}

struct Move {
    from: (u32, u32),
    to: (u32, u32),
    text: &'static str,
    /// The middle of the text.
    at: (u32, u32),
}

const STYLE: &str = "<style>
text{font:13px system-ui,sans-serif;fill:#24292f}
.s{font-size:11.5px;fill:#57606a}.b{font-weight:600}
.l{stroke:#57606a;stroke-width:1.4;fill:none}.d{stroke-dasharray:4 4}
.box{fill:#f6f8fa;stroke:#57606a;stroke-width:1.2}
.g{fill:#2da44e}.y{fill:#d4a72c}.r{fill:#cf222e}.u{fill:#0969da}.n{fill:#8c959f}.w{font-size:11.5px;fill:#ffffff}
.bg{fill:#ffffff}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.l{stroke:#9198a1}.box{fill:#161b22;stroke:#9198a1}
.w{fill:#ffffff}.bg{fill:#0d1117}}
</style>
<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
orient=\"auto-start-reverse\"><path d=\"M0 0L8 4L0 8z\" fill=\"#8c959f\"/></marker></defs>
";

/// Draws them all.
pub(crate) fn run() -> Result<()> {
    for (file, svg) in drawn() {
        let path = root().join("docs/pictures").join(file);
        fs::write(&path, svg).with_context(|| path.display().to_string())?;
    }
    println!(
        "drawn; PICTURES=overwrite cargo test -p redis-locks --test misuse pictures puts them into the pages"
    );
    Ok(())
}

fn drawn() -> Vec<(&'static str, String)> {
    let lanes = data::LANES.iter().map(|it| (it.file, lanes(it)));
    let others = [
        (data::CHOOSING.file, questions(&data::CHOOSING)),
        (data::GUARD.file, states(&data::GUARD)),
    ];
    lanes.chain(others).collect()
}

fn framed(title: &str, about: &str, height: usize, inside: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {height}\" width=\"800\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">{title}</title>\
         <desc id=\"d\">{about}</desc>\n{STYLE}<rect class=\"bg\" width=\"800\" height=\"{height}\" rx=\"8\"/>\n\
         <text x=\"20\" y=\"26\" class=\"b\">{title}</text>\n{inside}</svg>\n",
        title = escaped(title),
        about = escaped(about),
    )
}

fn lanes(picture: &Lanes) -> String {
    const ROW: usize = 32;
    let x = |time: f64| 130.0 + time * 6.4;
    let bottom = 42 + picture.lanes.len() * ROW;
    let mut inside = String::new();
    for (row, lane) in picture.lanes.iter().enumerate() {
        let top = 42 + row * ROW;
        let base = top + 14;
        let _ = writeln!(inside, "<text x=\"20\" y=\"{base}\">{}</text>", escaped(lane.name));
        for bar in lane.bars {
            let (left, right) = (x(bar.from), x(bar.to));
            let (width, middle, class) = (right - left, (left + right) / 2.0, bar.look.class());
            let _ = writeln!(
                inside,
                "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"20\" rx=\"3\"/>\
                 <text x=\"{middle:.1}\" y=\"{base}\" text-anchor=\"middle\" class=\"w\">{}</text>",
                escaped(bar.text)
            );
        }
        let (at, text) = lane.end;
        let at = x(at);
        let _ = writeln!(
            inside,
            "<text x=\"{at:.1}\" y=\"{base}\" class=\"s\">{}</text>",
            escaped(text)
        );
    }
    let (left, right) = (x(0.0), x(100.0));
    let _ = writeln!(
        inside,
        "<path class=\"l\" d=\"M{left:.1} {bottom}L{right:.1} {bottom}\" marker-end=\"url(#a)\"/>\
         <text x=\"{right:.1}\" y=\"{}\" text-anchor=\"end\" class=\"s\">time</text>",
        bottom + 15
    );
    framed(picture.title, picture.about, bottom + 26, &inside)
}

fn questions(picture: &Questions) -> String {
    const ROW: usize = 56;
    let mut inside = String::new();
    let boxed = |inside: &mut String, left: usize, top: usize, (text, below): (&str, &str)| {
        let (middle, base) = (left + 165, top + if below.is_empty() { 25 } else { 18 });
        let _ = writeln!(
            inside,
            "<rect class=\"box\" x=\"{left}\" y=\"{top}\" width=\"330\" height=\"40\" rx=\"6\"/>\
             <text x=\"{middle}\" y=\"{base}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" class=\"s\">{}</text>",
            escaped(text),
            top + 34,
            escaped(below)
        );
    };
    for (row, (question, answer, below)) in picture.questions.iter().enumerate() {
        let top = 42 + row * ROW;
        boxed(&mut inside, 20, top, (question, ""));
        boxed(&mut inside, 450, top, (answer, below));
        let (middle, bottom) = (top + 20, top + 40);
        let _ = writeln!(
            inside,
            "<path class=\"l\" d=\"M350 {middle}L447 {middle}\" marker-end=\"url(#a)\"/>\
             <text x=\"398\" y=\"{}\" text-anchor=\"middle\" class=\"s\">yes</text>\
             <path class=\"l\" d=\"M185 {bottom}L185 {}\" marker-end=\"url(#a)\"/>\
             <text x=\"192\" y=\"{}\" class=\"s\">no</text>",
            middle - 5,
            bottom + 14,
            bottom + 12
        );
    }
    let top = 42 + picture.questions.len() * ROW;
    boxed(&mut inside, 20, top, picture.last);
    framed(picture.title, picture.about, top + 56, &inside)
}

fn states(picture: &States) -> String {
    let (left, top, width, height) = picture.frame;
    let mut inside = format!(
        "<rect class=\"box\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
    );
    for State { at: (left, top), look, name, below } in picture.states {
        let _ = writeln!(
            inside,
            "<rect class=\"{}\" x=\"{left}\" y=\"{top}\" width=\"150\" height=\"24\" rx=\"4\"/>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" class=\"w\">{}</text>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" class=\"s\">{}</text>",
            look.class(),
            top + 16,
            escaped(name),
            top + 40,
            escaped(below),
            middle = left + 75,
        );
    }
    for Move { from, to, text, at } in picture.moves {
        let _ = writeln!(
            inside,
            "<path class=\"l\" d=\"M{} {}L{} {}\" marker-end=\"url(#a)\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" class=\"s\">{}</text>",
            from.0,
            from.1,
            to.0,
            to.1,
            at.0,
            at.1,
            escaped(text)
        );
    }
    let bottom = picture.states.iter().map(|state| state.at.1).max().unwrap_or(0);
    framed(picture.title, picture.about, bottom as usize + 60, &inside)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_those_of_the_data() {
        for (file, svg) in drawn() {
            let kept = fs::read_to_string(root().join("docs/pictures").join(file)).unwrap();
            assert_eq!(kept, svg, "{file}: run `cargo xtask pictures`");
        }
    }
}
