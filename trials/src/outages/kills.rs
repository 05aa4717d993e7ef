//! Kills primaries, and measures how long locks are not granted.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use testbed::{Cluster, Node, eventually};

use super::book::Book;
use super::down::Down;
use super::elsewhere::Elsewhere;
use super::load::{Load, wire};

const PACE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(20);

/// From a new primary that accepts writes to the next grant.
const GOAL: Duration = Duration::from_millis(300);

/// How long a lock was not granted after its primary was killed.
struct Recovery {
    /// From the moment at which the new primary accepted writes until the next grant.
    granted: Duration,
    /// From the same moment until the last of those who waited was served.
    served: Duration,
}

/// Kills a primary now and then for as long as is wanted; returns what is not as it should be.
pub(super) fn measure(cluster: &Cluster, load: &Load, time: Duration) -> Result<Vec<String>> {
    let mut elsewhere = Elsewhere::quiet(load);
    let down = Down::watch(cluster);
    println!("a primary is killed every {PACE:?} for {time:?}");
    let (start, lost, overlapped) = (Instant::now(), load.losses(), load.overlaps());
    let mut recoveries = Vec::new();
    let mut kills = 0;
    while start.elapsed() < time {
        let begun = Instant::now();
        let primaries = cluster.primaries();
        let victim = primaries[kills % primaries.len()];
        recoveries.extend(kill(cluster, load, victim, (&mut elsewhere, &down))?);
        kills += 1;
        load.check()?;
        thread::sleep(
            PACE.saturating_sub(begun.elapsed()).min(time.saturating_sub(start.elapsed())),
        );
    }
    let (lost, overlapped) = (load.losses() - lost, load.overlaps() - overlapped);
    println!("{kills} kills, {lost} losses, {overlapped} overlaps");
    let mut found = verdict(recoveries);
    found.extend(elsewhere.tell());
    Ok(found)
}

fn verdict(mut recoveries: Vec<Recovery>) -> Vec<String> {
    recoveries.sort_by_key(|it| it.granted);
    let median = recoveries.get(recoveries.len() / 2).map_or(Duration::ZERO, |it| it.granted);
    let worst = recoveries.last().map_or(Duration::ZERO, |it| it.granted);
    let served = recoveries.iter().map(|it| it.served).max().unwrap_or_default();
    println!("from writes to the next grant: median {median:.1?}, worst {worst:.1?}");
    println!("from writes until all who waited were served: worst {served:.1?}");
    let mut found = Vec::new();
    if worst > GOAL {
        found.push(format!(
            "a lock was granted again only {worst:?} after its successor took writes"
        ));
    }
    if served > Duration::from_secs(1) {
        found.push(format!("one who waited was served {served:?} after the successor took writes"));
    }
    found
}

/// Kills one, and starts it again when another has taken its place.
fn kill(
    cluster: &Cluster,
    load: &Load,
    victim: &Node,
    (elsewhere, down): (&mut Elsewhere, &Down),
) -> Result<Vec<Recovery>> {
    let is_there = |book: &&Arc<Book>| {
        book.keys.iter().any(|key| cluster.owner_of(&wire(key)).id() == victim.id())
    };
    let (books, others): (Vec<_>, Vec<_>) = load.books.iter().partition(is_there);
    let successor = cluster.replica_of(victim);
    let Some(key) = books
        .iter()
        .flat_map(|book| &book.keys)
        .map(|key| wire(key))
        .find(|key| cluster.owner_of(key).id() == victim.id())
    else {
        println!("  nothing is locked at {}", victim.id());
        return Ok(Vec::new());
    };
    let slot = cluster.slot_of(&key);
    let begun = Instant::now();
    victim.server().kill9();
    // In the slot of a lock, and no lock.
    let mut probe = redis::cmd("SET");
    probe.arg(format!("probe:{{{key}}}")).arg("1").arg("PX").arg(1_000);
    eventually(PATIENCE, "its successor takes writes", || {
        successor.server().query::<()>(&probe).is_ok()
    });
    let writable = Instant::now();
    let served = |book: &Book| book.granted_after(writable);
    for book in &books {
        eventually(PATIENCE, "it is granted again", || served(book).len() > 3);
    }
    let recoveries: Vec<_> = books
        .iter()
        .filter_map(|book| {
            let grants = served(book);
            let recovery = grants.first()?.granted - writable;
            let waited = grants.iter().filter(|grant| grant.asked < writable);
            let served = waited.map(|grant| grant.granted - writable).max().unwrap_or(recovery);
            println!("    {:<7} granted after {recovery:.1?}, served {served:.1?}", book.kind);
            Some(Recovery { granted: recovery, served })
        })
        .collect();
    elsewhere.note(cluster, down, &others, begun);
    cluster.until_replaced(victim, slot);
    cluster.restart(victim);
    println!(
        "  {} killed; its successor took writes after {:.1?}; {} losses, {} overlaps so far",
        victim.id(),
        writable - begun,
        load.losses(),
        load.overlaps()
    );
    Ok(recoveries)
}
