//! What the demo writes, and an animated picture of it.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

/// How long the last picture stays before the animation begins again.
const REST: Duration = Duration::from_secs(5);
/// A text that is replaced sooner than this is left out of the picture.
const BRIEF: Duration = Duration::from_millis(150);
const LINE: usize = 19;

/// Standard output, with the times of what was written.
pub(crate) struct Screen {
    start: Instant,
    written: RefCell<Vec<(Duration, String)>>,
    is_recorded: bool,
}

/// A text in a line, and when it can be seen.
struct Frame {
    line: usize,
    text: String,
    from: Duration,
    to: Option<Duration>,
}

impl Screen {
    pub(crate) fn new(is_recorded: bool) -> Self {
        Self { start: Instant::now(), written: RefCell::default(), is_recorded }
    }

    /// Whether a line can be written over. A recording looks like a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_recorded || stdout().is_terminal()
    }

    pub(crate) fn write(&self, text: &str) {
        print!("{text}");
        let _ = stdout().flush();
        self.written.borrow_mut().push((self.start.elapsed(), text.to_owned()));
    }

    /// The terminal as an animated SVG. Where nothing is animated, it shows the last picture.
    pub(crate) fn picture(&self, command: &str) -> String {
        let frames = self.frames(command);
        let end = self.start.elapsed() + REST;
        let lines = frames.iter().map(|frame| frame.line).max().unwrap_or_default() + 1;
        let height = lines * LINE + 50;
        let (mut style, mut texts) = (String::new(), String::new());
        for (at, frame) in frames.iter().enumerate() {
            let share = |time: Duration| 100.0 * time.as_secs_f64() / end.as_secs_f64();
            let from = share(frame.from);
            let (until, shown) = match frame.to {
                Some(to) => (format!("{:.2}%{{opacity:0}}", share(to)), "0"),
                None => (String::new(), "1"),
            };
            let _ = write!(
                style,
                "@keyframes k{at}{{0%{{opacity:0}}{from:.2}%{{opacity:1}}{until}}}\n\
                 .k{at}{{opacity:{shown};animation:k{at} {:.1}s step-end infinite}}\n",
                end.as_secs_f64()
            );
            let y = frame.line * LINE + 52;
            let text = escaped(&frame.text);
            let _ = writeln!(texts, "<text class=\"k{at}\" x=\"16\" y=\"{y}\">{text}</text>");
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 780 {height}\" width=\"780\" \
             height=\"{height}\" xml:space=\"preserve\" role=\"img\" aria-labelledby=\"t d\">\n\
             <title id=\"t\">{command}</title><desc id=\"d\">A recording of the command: four processes \
             add to one counter, first without the lock, then with it.</desc>\n<style>\n\
             text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#e6edf3}}\n\
             {style}</style>\n<rect width=\"780\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n\
             <circle cx=\"20\" cy=\"18\" r=\"5\" fill=\"#ff5f57\"/>\
             <circle cx=\"38\" cy=\"18\" r=\"5\" fill=\"#febc2e\"/>\
             <circle cx=\"56\" cy=\"18\" r=\"5\" fill=\"#28c840\"/>\n{texts}</svg>\n"
        )
    }

    fn frames(&self, command: &str) -> Vec<Frame> {
        let line = |line, text: &str, from| Frame { line, text: text.to_owned(), from, to: None };
        let mut frames = vec![line(0, &format!("$ {command}"), Duration::ZERO)];
        let mut last = line(1, "", Duration::ZERO);
        for (at, text) in self.written.borrow().iter() {
            for c in text.chars() {
                match c {
                    '\n' => {
                        let next = line(last.line + 1, "", *at);
                        frames.push(std::mem::replace(&mut last, next));
                    }
                    '\r' if last.text.is_empty() || *at < last.from + BRIEF => last.text.clear(),
                    '\r' => {
                        let next = line(last.line, "", *at);
                        frames.push(Frame { to: Some(*at), ..std::mem::replace(&mut last, next) });
                    }
                    c => last.text.push(c),
                }
            }
        }
        frames.retain(|frame| !frame.text.is_empty());
        frames
    }
}

fn escaped(text: &str) -> String {
    text.trim_end().replace('&', "&amp;").replace('<', "&lt;")
}
