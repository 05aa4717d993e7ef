//! Captures the messages to operators, for tests.

use std::fmt::{Debug, Write};
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Listener;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Keeps what is said from now on, by all threads.
pub(crate) fn listen() {
    // Another test of the same program may listen already.
    let _ = tracing::subscriber::set_global_default(Listener);
}

/// How many lines contain all of these.
pub(crate) fn count(words: &[&str]) -> usize {
    let lines = LINES.lock().unwrap();
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}
