//! What the outage of one primary costs the locks of the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use testbed::Cluster;

use super::book::{Book, Grant};
use super::down::Down;
use super::load::{Load, wire};

/// How long to look at what it is like without an outage.
const QUIET: Duration = Duration::from_secs(20);

/// What the 99th percentile may grow by where another node has failed.
const GOAL: f64 = 1.5;

/// How long callers waited for each kind of lock, without an outage and during one elsewhere.
pub(super) struct Elsewhere {
    quiet: BTreeMap<&'static str, Vec<Duration>>,
    during: BTreeMap<&'static str, Vec<Duration>>,
    /// How many were left out since their own node refused them: the cluster was down.
    refused: usize,
}

impl Elsewhere {
    /// Looks at what it is like without an outage.
    pub(super) fn quiet(load: &Load) -> Self {
        let start = Instant::now();
        thread::sleep(QUIET);
        let waits = |book: &Book| (book.kind, waits(book, start, Instant::now(), |_| true));
        let quiet = load.books.iter().map(|book| waits(book)).collect();
        Self { quiet, during: BTreeMap::new(), refused: 0 }
    }

    /// Adds those who were served since another node has failed, but for those whose own node said
    /// meanwhile that the cluster is down.
    pub(super) fn note(
        &mut self,
        cluster: &Cluster,
        down: &Down,
        books: &[&Arc<Book>],
        from: Instant,
    ) {
        let until = Instant::now();
        for book in books {
            let (gap, _) = book.longest_gap(from, until);
            println!("    {:<7} is elsewhere, longest gap {gap:.1?}", book.kind);
            let node = cluster.owner_of(&wire(&book.keys[0])).id();
            let all = waits(book, from, until, |_| true).len();
            let counted =
                waits(book, from, until, |grant| !down.refused(node, grant.asked, grant.granted));
            self.refused += all - counted.len();
            self.during.entry(book.kind).or_default().extend(counted);
        }
    }

    /// Returns what is not as it should be.
    pub(super) fn tell(mut self) -> Vec<String> {
        println!("{} elsewhere are not counted: the servers said CLUSTERDOWN", self.refused);
        let mut found = Vec::new();
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
            if during[1] > before[1].mul_f64(GOAL) {
                found.push(format!(
                    "{kind}: p99 elsewhere {:.1?} instead of {:.1?}",
                    during[1], before[1]
                ));
            }
        }
        found
    }
}

/// How long those waited who were served in this span and count, the shortest time first.
fn waits(
    book: &Book,
    from: Instant,
    until: Instant,
    counts: impl Fn(&Grant) -> bool,
) -> Vec<Duration> {
    let mut grants = book.granted_after(from);
    grants.retain(|grant| grant.granted < until && counts(grant));
    let mut waits: Vec<_> = grants.iter().map(|grant| grant.granted - grant.asked).collect();
    waits.sort_unstable();
    waits
}

/// The median, the 99th percentile, and the worst of times in order.
fn shares(waits: &[Duration]) -> [Duration; 3] {
    let at = |index: usize| waits.get(index).copied().unwrap_or_default();
    [at(waits.len() / 2), at(waits.len() * 99 / 100), at(waits.len().saturating_sub(1))]
}
