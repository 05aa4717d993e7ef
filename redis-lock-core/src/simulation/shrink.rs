//! Making a history that fails as short as it can be.

use super::plan::HistoryPlan;
use super::world::Ran;

/// A plan that fails as the given one does, with less in it.
pub(super) fn shrunk(plan: &HistoryPlan, run: &dyn Fn(&HistoryPlan) -> Ran) -> HistoryPlan {
    let fails = |plan: &HistoryPlan| run(plan).violation.is_some();
    let mut plan = without_items(plan, &fails);
    for simpler in [simple_path, plain_network, plain_clocks] {
        let candidate = simpler(&plan);
        if fails(&candidate) {
            plan = candidate;
        }
    }
    plan = without_readers(plan, &fails);
    plan = without_items(&plan, &fails);
    let mut calm_at = plan.calm_at;
    while calm_at > 200_000_000 {
        calm_at = calm_at * 3 / 4;
        let shorter = HistoryPlan { calm_at, ..plan.clone() };
        if !fails(&shorter) {
            break;
        }
        plan = shorter;
    }
    plan
}

/// Leaves out items: large parts first, then one by one.
fn without_items(plan: &HistoryPlan, fails: &dyn Fn(&HistoryPlan) -> bool) -> HistoryPlan {
    let mut plan = plan.clone();
    let mut part = plan.items().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        while from < plan.items() {
            let keeps: Vec<_> =
                (0..plan.items()).map(|item| item < from || item >= from + part).collect();
            let candidate = plan.with(&keeps);
            if fails(&candidate) {
                plan = candidate;
            } else {
                from += part;
            }
        }
        part /= 2;
    }
    plan
}

/// Lets no task read, or as little happen to those that do as can be.
fn without_readers(mut plan: HistoryPlan, fails: &dyn Fn(&HistoryPlan) -> bool) -> HistoryPlan {
    let candidate = HistoryPlan { readers: None, ..plan.clone() };
    if fails(&candidate) {
        return candidate;
    }
    let count = plan.readers.as_ref().map_or(0, |readers| readers.simpler().len());
    for number in 0..count {
        let readers = plan.readers.as_ref().and_then(|it| it.simpler().into_iter().nth(number));
        let candidate = HistoryPlan { readers, ..plan.clone() };
        if fails(&candidate) {
            plan = candidate;
        }
    }
    plan
}

fn simple_path(plan: &HistoryPlan) -> HistoryPlan {
    let mut plan = plan.clone();
    (plan.path.bad_hints, plan.path.rounds, plan.path.sluggish) = (0, 0, 20_000);
    plan
}

fn plain_network(plan: &HistoryPlan) -> HistoryPlan {
    let mut plan = plan.clone();
    plan.path.slow = 0;
    plan
}

fn plain_clocks(plan: &HistoryPlan) -> HistoryPlan {
    let mut plan = plan.clone();
    plan.processes.iter_mut().for_each(|process| process.rate = 0);
    plan.nodes.iter_mut().for_each(|nodes| nodes.ahead.fill(0));
    plan
}
