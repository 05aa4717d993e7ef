//! Machines that stand still with their clocks, as virtual machines do that are paused.

use std::sync::Arc;
use std::time::Duration;

use super::World;
use crate::simulation::books::{CallRecord, HoldNote};
use crate::simulation::clock::{self, MILLI, SECOND};
use crate::simulation::full_key;
use crate::simulation::plan::HistoryPlan;
use crate::simulation::planned_trouble::PlannedTrouble;
use crate::simulation::random::{self, Random};

/// Makes these random numbers differ from others of the same seed.
const OF_STANDING: u64 = 131;

impl HistoryPlan {
    /// The history of a seed in which the machines of some processes stand still.
    pub(in crate::simulation) fn standing_still(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        let random = &mut Random::new(random::hash([seed, OF_STANDING, 0, 0]));
        for process in 0..plan.processes.len() {
            if random.percent(60) {
                let lasts = random.pick(&[100, 290, 500, 990, 3_500, 8_000]) * MILLI;
                let still = PlannedTrouble::StandStill { process, lasts };
                plan.troubles.push((random.below(plan.calm_at), still));
            }
        }
        for planned in &mut plan.planned_calls {
            planned.margin = planned.margin.max(random.pick(&[0, 0, 300, 1_000, 4_000]) * MILLI);
        }
        plan.troubles.sort_by_key(|(at, _)| *at);
        plan.calm_at = plan.calm_at.max(SECOND);
        plan
    }
}

impl World {
    /// A machine stands still, which it does once.
    pub(super) fn stand_still(&mut self, process: usize, lasts: u64) {
        let now = clock::now();
        if self.processes[process].clock.stand_still(now, now + lasts) {
            self.begin_trouble(PlannedTrouble::Pause { process, lasts }, now);
        }
    }

    /// Whether a guard relies on more than the server has, because its clock has stood still since its lease
    /// was asked for, for longer than its margin. That is no promise.
    pub(super) fn outlives_margin(&self, note: &HoldNote) -> bool {
        let process = &self.processes[note.process];
        let Some((shown, lasts)) = process.clock.stood_still(clock::now()) else { return false };
        let token = note.hold.token.wire();
        let longest = self.server.tokens.get(token).map_or(0, |token| token.longest);
        let (deadline, lasts) = (note.hold.deadline(), Duration::from_nanos(lasts));
        let asked_before = deadline <= shown.after(Duration::from_nanos(longest));
        let believed = process.clock.when(deadline);
        let end = |key: &usize| self.server.lease_end(&full_key(*key), token);
        asked_before
            && lasts > note.hold.demand.terms.margin
            && note.keys.iter().any(|key| end(key).is_none_or(|end| end < believed))
    }

    /// Whether the process of a call believed in a hold of its keys that has ended since its clock stood still. It
    /// may have given the hold up in the step that ended the call.
    pub(super) fn is_believed_in_standstill(&self, call: &CallRecord) -> bool {
        let process = &self.processes[call.process];
        let Some((shown, _)) = process.clock.stood_still(clock::now()) else { return false };
        let (since, (in_machines, _)) = (process.clock.when(shown), process.core.tokens());
        call.keys.iter().any(|key| {
            let key = full_key(*key);
            let given_up =
                |token: &Arc<str>| self.server.tokens.get(token).and_then(|note| note.given_up);
            let mut stays = self.server.stays_since(&key, since);
            stays.any(|stay| {
                let ends_now = given_up(&stay.token).is_some_and(|at| at >= call.began.max(since));
                in_machines.contains(&stay.token) || ends_now
            })
        })
    }
}
