//! Slots that move to and fro.

use std::time::{Duration, Instant};

use anyhow::Result;
use testbed::Cluster;

use super::load::{Load, wire};

/// No lock may be without a grant for longer while its slot moves.
const GOAL: Duration = Duration::from_millis(500);

/// Moves the slots of the locks, one after the other, for as long as is wanted; returns what is not
/// as it should be.
pub(super) fn measure(cluster: &Cluster, load: &Load, time: Duration) -> Result<Vec<String>> {
    println!("slots move to and fro for {time:?}");
    let keys: Vec<_> = load.books.iter().flat_map(|book| &book.keys).collect();
    let (start, before) = (Instant::now(), load.count());
    let (mut moves, mut shown) = (0, Instant::now());
    for key in keys.iter().cycle() {
        if start.elapsed() >= time {
            break;
        }
        load.check()?;
        let slot = cluster.slot_of(&wire(key));
        let primaries = cluster.primaries();
        let from = cluster.owner(slot).id();
        let others: Vec<_> = primaries.iter().filter(|node| node.id() != from).collect();
        cluster.move_slots(slot..=slot, others[moves % others.len()]);
        moves += 1;
        if shown.elapsed() >= Duration::from_secs(5) {
            shown = Instant::now();
            let holds = load.count() - before;
            println!("  {:>4.0?}: {moves} moves, {holds} holds", start.elapsed());
        }
    }
    let end = Instant::now();
    println!("{moves} moves, {} losses, {} overlaps", load.losses(), load.overlaps());
    let mut found = Vec::new();
    for book in &load.books {
        let (gap, at) = book.longest_gap(start, end);
        println!(
            "  {:<7}{:>7} holds, longest gap {gap:.1?} after {at:.1?}",
            book.kind,
            book.count()
        );
        if gap >= GOAL {
            found.push(format!("{}: a gap of {gap:?} while slots moved", book.kind));
        }
    }
    if load.losses() + load.overlaps() > 0 {
        found.push("locks were lost, or had by two, while slots moved".into());
    }
    Ok(found)
}
