//! What the outage of one primary costs the locks of the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::book::Book;
use super::load::Load;

/// How long to look at what it is like without an outage.
const QUIET: Duration = Duration::from_secs(20);

/// How long callers waited for each kind of lock, without an outage and during one elsewhere.
pub(super) struct Elsewhere {
    quiet: BTreeMap<&'static str, Vec<Duration>>,
    during: BTreeMap<&'static str, Vec<Duration>>,
}

impl Elsewhere {
    /// Looks at what it is like without an outage.
    pub(super) fn quiet(load: &Load) -> Self {
        let start = Instant::now();
        thread::sleep(QUIET);
        let waits = |book: &Book| (book.kind, book.waits(start, Instant::now()));
        let quiet = load.books.iter().map(|book| waits(book)).collect();
        Self { quiet, during: BTreeMap::new() }
    }

    /// Adds those who were served since another node has failed.
    pub(super) fn note(&mut self, books: &[&Arc<Book>], from: Instant) {
        let until = Instant::now();
        for book in books {
            let (gap, _) = book.longest_gap(from, until);
            println!("    {:<7} is elsewhere, longest gap {gap:.1?}", book.kind);
            self.during.entry(book.kind).or_default().extend(book.waits(from, until));
        }
    }

    pub(super) fn tell(mut self) {
        for (kind, waits) in &mut self.during {
            waits.sort_unstable();
            let (before, during) = (shares(&self.quiet[kind]), shares(waits));
            println!(
                "{kind:<7} elsewhere: p50 {:.1?}, p99 {:.1?}, worst {:.1?}, of {}; without an outage \
                 p50 {:.1?}, p99 {:.1?}, worst {:.1?}, of {}",
                during[0],
                during[1],
                during[2],
                waits.len(),
                before[0],
                before[1],
                before[2],
                self.quiet[kind].len(),
            );
        }
    }
}

/// The median, the 99th percentile, and the worst of times in order.
fn shares(waits: &[Duration]) -> [Duration; 3] {
    let at = |index: usize| waits.get(index).copied().unwrap_or_default();
    [at(waits.len() / 2), at(waits.len() * 99 / 100), at(waits.len().saturating_sub(1))]
}
