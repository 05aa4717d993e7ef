//! Histories in which success is remembered.

use super::clock::MILLI;
use super::plan::{Act, CallEnding, HistoryPlan, PlannedCall, Sort};
use super::planned_trouble::PlannedTrouble;
use super::random::Random;

impl HistoryPlan {
    /// In a fifth of the histories some holds are asked for once, and most of these succeed.
    pub(super) fn add_successes(&mut self) {
        let random = &mut Random::new(self.seed ^ 0x6f6e_6365);
        if !random.percent(20) {
            return;
        }
        let keys = &self.keys;
        let may =
            |call: &&mut PlannedCall| call.keys.len() == 1 && keys[call.keys[0]] == Sort::Mutex;
        for planned in self.planned_calls.iter_mut().filter(may) {
            planned.once = Some(random.pick(&[150, 700, 2_000, 4_000]) * MILLI);
            (planned.linger, planned.min_hold) = (None, None);
            if planned.ending != CallEnding::Detach && random.percent(60) {
                planned.ending = CallEnding::Complete;
            }
        }
    }

    /// Short bodies that succeed, on connections that end with the news of it on their way.
    pub(super) fn completing(seed: u64) -> Self {
        let (mut plan, random) = (Self::of(seed), &mut Random::new(seed ^ 0x646f_6e65));
        (plan.keys, plan.path.latency) = (vec![Sort::Mutex], random.pick(&[5, 20, 40]) * MILLI);
        plan.troubles.clear();
        for planned in &mut plan.planned_calls {
            *planned = PlannedCall {
                keys: vec![0],
                once: Some(random.pick(&[1_000, 2_000, 4_000]) * MILLI),
                ttl: random.pick(&[1_000, 2_000]) * MILLI,
                ending: CallEnding::Complete,
                acts: vec![Act::Work(random.between(1, 200) * MILLI)],
                linger: None,
                min_hold: None,
                max_hold: None,
                polls: None,
                patience: None,
                heir: None,
                ..planned.clone()
            };
        }
        for _ in 0..random.between(10, 40) {
            let process = random.below(plan.processes.len() as u64) as usize;
            let late = random.percent(30).then(|| random.between(10, 1_500) * MILLI);
            plan.troubles.push((random.below(plan.calm_at), PlannedTrouble::Cut { process, late }));
        }
        plan.troubles.sort_by_key(|(at, _)| *at);
        plan
    }
}

impl HistoryPlan {
    /// Most calls share their values, and others want the same lock.
    pub(super) fn sharing(seed: u64) -> Self {
        let (mut plan, random) = (Self::of(seed), &mut Random::new(seed ^ 0x7368_6172));
        plan.keys = vec![Sort::Mutex];
        for planned in &mut plan.planned_calls {
            let share = random.percent(80);
            let ends = if random.percent(70) { CallEnding::Share } else { CallEnding::Drop };
            *planned = PlannedCall {
                keys: vec![0],
                once: None,
                share,
                wait: None,
                ending: if share { ends } else { CallEnding::Release },
                linger: None,
                min_hold: None,
                heir: None,
                ..planned.clone()
            };
        }
        plan
    }
}

#[test]
fn histories_in_which_values_are_shared_keep_every_promise() {
    super::tests::keep_every_promise(HistoryPlan::sharing, 100);
}

#[test]
fn histories_in_which_success_is_remembered_keep_every_promise() {
    super::tests::keep_every_promise(HistoryPlan::completing, 100);
}
