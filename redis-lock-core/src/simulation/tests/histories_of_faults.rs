//! More base histories of the walks: each shows a planted fault by itself, which those of `small_histories` don't.

use super::small_histories::{Scenario, two_and_two, with};
use crate::simulation::clock::{MILLI, SECOND};
use crate::simulation::plan::{Act, HistoryPlan, NodesPlan, PlannedCall, Sort};
use crate::simulation::planned_trouble::{PlannedTrouble, Refusal};

/// Two tasks of one process that want one lock.
fn two(of: impl Fn(&mut PlannedCall)) -> HistoryPlan {
    let mut plan = two_and_two(of);
    plan.planned_calls.retain(|call| call.process == 0);
    plan
}

pub(super) fn shown_at_once() -> Vec<Scenario> {
    // The second one wants a longer lease, and comes while the first one's question is open.
    let given_up = two(|call| {
        call.after = [30, 33][call.task] * MILLI;
        call.patience = (call.task == 0).then_some(7 * MILLI);
        call.ttl = [1, 2][call.task] * SECOND;
    });
    // A turn of one process lasts for 10 ms.
    let brief = vec![Act::Work(4 * MILLI)];
    let shorter = two(|call| (call.ttl, call.acts) = ([2, 1][call.task] * SECOND, brief.clone()));
    // Less than half of the lease is left when the answer arrives.
    let mut stale = two(|call| {
        (call.after, call.ttl) = ([60, 101][call.task] * MILLI, 200 * MILLI);
        call.acts.clone_from(&brief);
    });
    let connects = PlannedCall { after: 0, ..stale.planned_calls[0].clone() };
    stale.planned_calls.insert(0, connects);
    let stall = PlannedTrouble::Stall { process: 0, lasts: 120 * MILLI };
    let read_only = two_and_two(|call| call.wait = Some(100 * MILLI));
    let refuse = PlannedTrouble::Refuse { why: Refusal::ReadOnly, lasts: SECOND };
    let beside_idle = two_and_two(|call| match call.process {
        0 => (call.linger, call.acts) = (Some(2 * SECOND), vec![Act::Work(100 * MILLI)]),
        _ => (call.wait, call.after) = (Some(0), [60, 150][call.task] * MILLI),
    });
    vec![
        ("given up for another", given_up),
        ("passed on for a shorter lease", shorter),
        ("passed on late", with(stale, 90, stall)),
        ("read-only from the beginning", with(read_only, 0, refuse)),
        ("no wait beside an idle lease", beside_idle),
        ("a node that sends no messages", silent_node()),
    ]
}

fn silent_node() -> HistoryPlan {
    let mut plan = two_and_two(|call| {
        call.keys = vec![call.task];
        (call.ttl, call.acts) = (30 * SECOND, vec![Act::Work(5 * SECOND)]);
    });
    (plan.keys, plan.calm_at) = (vec![Sort::Mutex; 2], 6 * SECOND);
    plan.nodes = Some(NodesPlan {
        count: 2,
        owners: vec![0, 1],
        ahead: vec![0; 4],
        only_moves: false,
        has_sentinels: false,
    });
    with(plan, 100, PlannedTrouble::DeafenAt { node: 0, lasts: 6 * SECOND })
}
