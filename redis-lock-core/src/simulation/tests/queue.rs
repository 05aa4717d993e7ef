//! Waiters of one process in one queue.

use super::{calm, holds};
use crate::domain::planted::{self, PlantedFault};
use crate::simulation::clock::{MILLI, SECOND};
use crate::simulation::plan::{HistoryPlan, PlannedCall, ProcessPlan, Sort};
use crate::simulation::planned_trouble::{PlannedTrouble, Refusal};
use crate::simulation::run;

/// Six of a process wait for a permit, and all but the last two give up at the same time.
fn gives_way(patience: u64) -> HistoryPlan {
    let holder = holds(0, 60 * SECOND, 9 * SECOND);
    let waits = |task: usize| PlannedCall {
        task,
        after: SECOND + task as u64 * MILLI,
        patience: (task <= 4).then_some(patience),
        ..holds(0, 60 * SECOND, 0)
    };
    HistoryPlan {
        processes: vec![ProcessPlan { rate: 0, command_timeout: SECOND }],
        keys: vec![Sort::Permit(1)],
        planned_calls: [holder].into_iter().chain((1..=6).map(waits)).collect(),
        troubles: Vec::new(),
        path: calm(MILLI),
        calm_at: 12 * SECOND,
        ..HistoryPlan::of(1)
    }
}

#[test]
fn a_waiter_before_whom_others_give_up_comes_forward() {
    let patience = || (30..60).step_by(3).map(|tenth| tenth * 100 * MILLI);
    for time in patience() {
        assert_eq!(run(&gives_way(time), false).violation, None, "given up after {time} ns");
    }
    planted::plant(Some(PlantedFault::StaysBehind));
    let violations: Vec<_> =
        patience().filter_map(|time| run(&gives_way(time), false).violation).collect();
    planted::plant(None);
    let is_it = |what: &String| what.ends_with("waits for what nobody has");
    assert!(!violations.is_empty() && violations.iter().all(is_it), "{violations:?}");
}

/// Eight of a process wait for a permit. They come while the server has no memory for them, so that each
/// queues when it tries again, and four of them give up when it has been calm for long.
fn queues_in_another_order(number: u64) -> HistoryPlan {
    let holder = holds(0, 60 * SECOND, 20 * SECOND);
    let waits = |task: usize| PlannedCall {
        task,
        after: SECOND + (task as u64 * 7 + number) * MILLI,
        patience: (task <= 4).then_some(12 * SECOND),
        ..holds(0, 60 * SECOND, 0)
    };
    let full = PlannedTrouble::Refuse { why: Refusal::OutOfMemory, lasts: SECOND };
    HistoryPlan {
        processes: vec![ProcessPlan { rate: 0, command_timeout: SECOND }],
        keys: vec![Sort::Permit(1)],
        planned_calls: [holder].into_iter().chain((1..=8).map(waits)).collect(),
        troubles: vec![(900 * MILLI, full)],
        path: calm(MILLI),
        calm_at: 25 * SECOND,
        ..HistoryPlan::of(1)
    }
}

#[test]
fn the_first_in_the_queue_looks_in_whichever_order_they_have_queued() {
    for number in 0..40 {
        let ran = run(&queues_in_another_order(number), false);
        assert_eq!(ran.violation, None, "history {number}");
    }
}
