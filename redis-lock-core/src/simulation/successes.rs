//! Histories in which success is remembered.

use std::collections::BTreeMap;

use super::books::Ended;
use super::clock::{self, MILLI};
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

/// The bodies that have shared their values, and who got these.
#[derive(Default)]
pub(super) struct SharedRuns {
    runs: BTreeMap<u64, SharedRun>,
}

#[derive(Default)]
struct SharedRun {
    process: usize,
    /// When its process knew that it had ended.
    ended: u64,
    /// How its call ended.
    outcome: Option<Ended>,
    /// When each process has got its value first.
    got: BTreeMap<usize, u64>,
    /// Whether a call of its own process has.
    at_home: bool,
}

impl SharedRuns {
    pub(super) fn begin(&mut self, run: u64, process: usize) {
        self.runs.insert(run, SharedRun { process, ended: clock::now(), ..SharedRun::default() });
    }

    pub(super) fn end(&mut self, run: u64, outcome: &Ended) {
        self.runs.entry(run).or_default().outcome = Some(outcome.clone());
    }

    /// A call of a process, which began then, has got a value.
    pub(super) fn got(
        &mut self,
        value: &str,
        (process, began): (usize, u64),
    ) -> Result<(), String> {
        let number = value.parse().map_err(|_| format!("got the value {value:?}"))?;
        let run = self
            .runs
            .get_mut(&number)
            .ok_or_else(|| format!("got the value of no run: {value}"))?;
        let is_home = run.process == process;
        run.at_home |= is_home;
        let known = if is_home { Some(run.ended) } else { run.got.get(&process).copied() };
        run.got.entry(process).or_insert_with(clock::now);
        match known {
            Some(known) if known < began => Err(format!(
                "came after its process knew that run {number} had ended, and got its value"
            )),
            _ => Ok(()),
        }
    }

    /// A run of which a value was seen, and which had not succeeded.
    pub(super) fn wrong(&self) -> Option<u64> {
        let is_wrong = |run: &SharedRun| match &run.outcome {
            Some(Ended::Good) => false,
            Some(Ended::Failed(error)) if error.is_lost() => !run.got.is_empty(),
            _ => run.at_home,
        };
        self.runs.iter().find(|(_, run)| is_wrong(run)).map(|(number, _)| *number)
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
