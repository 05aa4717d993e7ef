//! What processes promise above a quorum, whatever its nodes do.

use std::time::Duration;

use super::QuorumWorld;
use super::callers::TTL;
use crate::domain::planted::{PlantedFault, plant};
use crate::simulation::clock::MILLI;
use crate::simulation::executor::sleep;

/// How long a node that restarts does not vote, where leases are as short as in histories of a seed.
const REJOIN: Duration = Duration::from_millis(1_300);

/// A lease that no such history renews but for a reason. Nodes are just old enough for it.
const LONG: Duration = Duration::from_secs(90);

/// What a history of a seed came to: grants and losses.
fn history(seed: u64) -> Result<(u32, u32), String> {
    let nodes = if seed.is_multiple_of(3) { 5 } else { 3 };
    let mut world = QuorumWorld::new(seed, nodes, 3, REJOIN);
    let calm_at = world.now + 8_000;
    for at in 0..6 {
        let caller = world.caller(at % 3, seed * 8 + at as u64);
        world.spawn(at % 3, caller.lives(at % 3, calm_at * MILLI));
    }
    let is_calm = seed.is_multiple_of(4);
    if seed % 5 < 2 {
        let at = (seed % 3) as usize;
        let limit = Duration::from_millis(world.random.pick(&[0, 200, 5_000]));
        let begins = world.random.below(8_000) * MILLI;
        let caller = world.caller(at, seed);
        world.spawn(at, async move {
            sleep(begins).await;
            caller.drains(at, limit).await;
        });
    }
    while world.now < calm_at {
        world.step()?;
        if !is_calm && world.now.is_multiple_of(100) && world.random.percent(60) {
            world.trouble();
        }
    }
    let (grants, losses) = (world.notes.borrow().grants, world.notes.borrow().losses);
    if is_calm && losses > 0 {
        return Err(format!("{losses} losses where nothing is wrong"));
    }
    world.troubled_at = world.now;
    world.heal();
    for at in 0..nodes {
        world.nodes[at].latency = 1;
        if !world.nodes[at].is_up {
            let (now, run) = (world.now, world.random.next());
            world.nodes[at].restart(now, run);
        }
    }
    world.until(20_000, "all callers are served", |world| world.executor.is_done())?;
    world.pass(6_000)?;
    let left = (0..nodes).flat_map(|at| world.held_at(at)).next();
    if let Some(token) = left {
        return Err(format!("{token} is left on a node"));
    }
    world.until(5_000, "all processes are at rest", |world| {
        world.clients.iter().all(|client| {
            client.process.clock.enter();
            client.process.is_at_rest()
        })
    })?;
    Ok((grants, losses))
}

fn found(fault: PlantedFault, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    plant(Some(fault));
    let found = seeds.into_iter().find_map(|seed| Some((seed, history(seed).err()?)));
    plant(None);
    found
}

/// With `SIMULATE_SECONDS` it runs for so long, from the seed `SIMULATE_FROM` on; with `SIMULATE_SEED` it plays
/// that one alone.
#[test]
fn histories_above_a_quorum_keep_every_promise() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("SIMULATE_SEED") {
        history(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        return;
    }
    let (first, seconds) = (number("SIMULATE_FROM").unwrap_or(1), number("SIMULATE_SECONDS"));
    let (began, mut seed, mut all) = (std::time::Instant::now(), first, (0, 0));
    while seconds.map_or(seed < first + 12, |most| began.elapsed().as_secs() < most) {
        let (grants, losses) = history(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        (all.0, all.1, seed) = (all.0 + grants, all.1 + losses, seed + 1);
    }
    println!("{} histories from seed {first}, {} grants, {} losses", seed - first, all.0, all.1);
    assert!(all.0 > 10, "{all:?}");
}

/// A node that was slow stayed so for connections of that time, so releases were asked again for ever.
#[test]
fn histories_above_a_quorum_that_once_failed_end_at_rest() {
    for seed in [1033, 1141, 1163, 1331, 1369] {
        history(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn faults_of_a_quorum_are_found_by_its_clients() {
    use PlantedFault::{FenceOfOne, MajorityOfReached, NodeUnwatched, YoungVote};
    // From shortly before a seed that finds it.
    let faults = [(FenceOfOne, 5), (MajorityOfReached, 1), (NodeUnwatched, 1), (YoungVote, 28)];
    for (fault, from) in faults {
        let found = found(fault, from..200);
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?}");
    }
}

/// A node that has lost a reader which was a writer gets it back soon after it is back, by whatever order of
/// answers.
#[test]
fn a_node_that_is_back_gets_a_reader_that_was_a_writer() {
    let returns = |latencies: [u64; 3], lost: usize| {
        let mut world = QuorumWorld::new(1, 3, 1, LONG);
        let caller = world.caller(0, 1);
        world.spawn(0, caller.reads_what_it_wrote(0, LONG, 60_000 * MILLI));
        for (node, latency) in world.nodes.iter_mut().zip(latencies) {
            node.latency = latency;
        }
        let has = |world: &QuorumWorld, at: usize| !world.held_at(at).is_empty();
        world.until(2_000, "it is a reader", |world| world.notes.borrow().readers() == 1)?;
        world.until(500, "all have it", |world| (0..3).all(|at| has(world, at)))?;
        let now = world.now;
        world.nodes[lost].restart(now, 99);
        world.troubled_at = now;
        let lock = "lock:files";
        world.until(1_500, "it has the reader", |world| {
            let entry = world.nodes[lost].state.entries.get(lock);
            entry.is_some_and(|it| it.holders.iter().count() == 1 && has(world, lost))
        })
    };
    let all = || (0..3).flat_map(|lost| [1, 9, 13, 17, 40].map(|latency| (lost, latency)));
    let failing = |fault| {
        plant(fault);
        let fails = |(lost, latency): &(usize, u64)| {
            let mut latencies = [10; 3];
            latencies[*lost] = *latency;
            returns(latencies, *lost).is_err()
        };
        let failing: Vec<_> = all().filter(fails).collect();
        plant(None);
        failing
    };
    assert_eq!(failing(None), []);
    assert_ne!(failing(Some(PlantedFault::ReaderStaysAway)), []);
}

/// What a majority has lost is lost, also where it could be brought back.
#[test]
fn a_hold_that_a_majority_has_forgotten_is_lost() {
    let is_kept = |fault| {
        plant(fault);
        let mut world = QuorumWorld::new(1, 3, 1, REJOIN);
        let caller = world.caller(0, 1);
        world.spawn(0, caller.holds(0, 3_000 * MILLI));
        world
            .until(2_000, "all have it", |world| (0..3).all(|at| !world.held_at(at).is_empty()))
            .unwrap();
        world.nodes[..2].iter_mut().for_each(|node| node.state = Default::default());
        world.troubled_at = world.now + 10_000;
        world.pass(2 * TTL.as_millis() as u64).unwrap();
        let is_kept = !world.held_at(0).is_empty();
        plant(None);
        is_kept
    };
    assert!(!is_kept(None));
    assert!(is_kept(Some(PlantedFault::RepairCounts)));
}
