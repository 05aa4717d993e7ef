//! Histories with much of what a certain planted fault needs to show, which is rare in others.

use crate::simulation::clock::{MILLI, SECOND};
use crate::simulation::plan::{Act, CallEnding, HistoryPlan, Sort};
use crate::simulation::planned_trouble::{PlannedTrouble, Refusal};
use crate::simulation::random::Random;

/// Everybody wants the first mutex for a moment, and waits for it and for its release.
fn in_turn(plan: &mut HistoryPlan, ttl: u64, work: u64) {
    plan.keys[0] = Sort::Mutex;
    for planned in &mut plan.planned_calls {
        (planned.keys, planned.ttl, planned.wait, planned.linger) = (vec![0], ttl, None, None);
        (planned.min_hold, planned.max_hold, planned.patience, planned.polls) =
            (None, None, None, None);
        (planned.renew, planned.margin, planned.after) = (true, 0, 0);
        (planned.acts, planned.ending) = (vec![Act::Work(work)], CallEnding::Release);
        (planned.heir, planned.once) = (None, None);
    }
}

fn troubled(plan: &mut HistoryPlan, count: u64, trouble: impl Fn(&mut Random) -> PlannedTrouble) {
    let random = &mut Random::new(plan.seed);
    plan.troubles = (0..count).map(|_| (random.below(plan.calm_at), trouble(random))).collect();
    plan.troubles.sort_by_key(|(at, _)| *at);
}

/// Connections end all the time, so that a release is sent again while another one has the lock.
pub(super) fn cut_often(seed: u64) -> HistoryPlan {
    let mut plan = HistoryPlan::of(seed);
    in_turn(&mut plan, SECOND, 5 * MILLI);
    let processes = plan.processes.len() as u64;
    troubled(&mut plan, 40, |random| PlannedTrouble::Cut {
        process: random.below(processes) as usize,
        late: None,
    });
    plan
}

/// Everybody wants one of two permits with slots, for a moment.
pub(super) fn of_two_slots(seed: u64) -> HistoryPlan {
    let mut plan = HistoryPlan::of(seed);
    in_turn(&mut plan, SECOND, 5 * MILLI);
    plan.keys[0] = Sort::Permit(2);
    plan.planned_calls.iter_mut().for_each(|planned| planned.fenced = false);
    plan
}

/// Nearly every third message is late, on servers that are replaced when they don't answer.
pub(super) fn answered_late(seed: u64) -> HistoryPlan {
    let mut plan = HistoryPlan::with_successors(seed);
    in_turn(&mut plan, 30 * SECOND, 20 * MILLI);
    plan.path.slow = 300;
    plan.planned_calls.truncate(8);
    plan.troubles.clear();
    // So long that an answer which is late by two seconds still counts as one.
    plan.processes.iter_mut().for_each(|process| process.command_timeout = 5 * SECOND);
    plan
}

/// Slots stay half moved for longer than leases last, and nothing else is wrong.
pub(super) fn half_moved_for_long(seed: u64) -> HistoryPlan {
    let mut plan = HistoryPlan::on_nodes(seed);
    in_turn(&mut plan, SECOND, 3 * SECOND);
    (plan.path.slow, plan.path.bad_hints, plan.path.rounds) = (0, 0, 0);
    plan.path.latency = plan.path.latency.min(5 * MILLI);
    let Some(nodes) = &mut plan.nodes else { return plan };
    (nodes.only_moves, nodes.owners[0]) = (true, 0);
    let count = nodes.count as u64;
    troubled(&mut plan, 4, |random| PlannedTrouble::MoveSlot {
        key: 0,
        to: random.below(count) as usize,
        part: random.pick(&[0, 50, 100]),
        lasts: 2_500 * MILLI,
    });
    plan
}

/// Several keys of one node are taken again and again, while the slot of one of them moves.
pub(super) fn moved_under_traffic(seed: u64) -> HistoryPlan {
    let mut plan = HistoryPlan::on_nodes(seed);
    in_turn(&mut plan, SECOND, MILLI);
    plan.keys = vec![Sort::Mutex; 3];
    for (planned, key) in plan.planned_calls.iter_mut().zip((0..3).cycle()) {
        (planned.keys, planned.wait) = (vec![key], Some(0));
    }
    (plan.path.slow, plan.path.latency) = (0, 5 * MILLI);
    let Some(nodes) = &mut plan.nodes else { return plan };
    nodes.owners = vec![0; 3];
    let count = nodes.count as u64;
    plan.calm_at = SECOND;
    troubled(&mut plan, 12, |random| PlannedTrouble::MoveSlot {
        key: random.below(3) as usize,
        to: random.below(count) as usize,
        part: 100,
        lasts: 0,
    });
    plan
}

/// A server whose replicas are counted is full now and then, and nothing else is wrong.
pub(super) fn full_with_replicas(seed: u64) -> HistoryPlan {
    let mut plan = HistoryPlan::of(seed);
    (plan.path.slow, plan.path.rounds, plan.path.has_replicas) = (0, 0, true);
    plan.path.latency = plan.path.latency.min(5 * MILLI);
    let full = PlannedTrouble::Refuse { why: Refusal::OutOfMemory, lasts: 2 * SECOND };
    troubled(&mut plan, 3, |_| full);
    plan
}

/// Processes stand still for longer than their leases, some of which have a margin.
pub(super) fn paused_with_margins(seed: u64) -> HistoryPlan {
    let mut plan = HistoryPlan::of(seed);
    in_turn(&mut plan, SECOND, 200 * MILLI);
    plan.planned_calls.iter_mut().for_each(|planned| planned.margin = 3 * SECOND);
    let processes = plan.processes.len() as u64;
    troubled(&mut plan, 6, |random| PlannedTrouble::Pause {
        process: random.below(processes) as usize,
        lasts: random.pick(&[800, 1_200, 1_900]) * MILLI,
    });
    plan
}
