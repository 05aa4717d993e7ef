//! Which faults happen in a history, and when.

use super::clock::{MILLI, SECOND};
use super::plan::{Act, HistoryPlan};
use super::planned_trouble::{PlannedTrouble, Refusal};
use super::random::Random;

/// Times on both sides of every limit that there is.
const LONG: [u64; 11] = [50, 95, 105, 200, 450, 520, 990, 1_050, 1_900, 2_100, 5_100];

/// How many sorts of trouble there are.
const SORTS: u64 = 24;

impl HistoryPlan {
    /// Renewals and longer ones, on connections that end with bytes on their way.
    pub(super) fn extend_over_cuts(&mut self, random: &mut Random) {
        self.path.latency = random.pick(&[1, 5, 31]) * MILLI;
        for planned in &mut self.planned_calls {
            planned.acts = (0..6)
                .map(|turn| match turn % 2 {
                    0 => Act::Work(random.between(10, 500) * MILLI),
                    _ => Act::Extend(random.pick(&[1_500, 6_000, 30_000]) * MILLI),
                })
                .collect();
            planned.ttl = random.pick(&[300, 400, 600]) * MILLI;
            (planned.max_hold, planned.patience, planned.polls) = (None, None, None);
        }
        for _ in 0..8 {
            let process = random.below(self.processes.len() as u64) as usize;
            let late = Some(random.between(10, 1_500) * MILLI);
            let trouble = if random.percent(50) {
                PlannedTrouble::Cut { process, late }
            } else {
                PlannedTrouble::HalfOpen { process, late }
            };
            self.troubles.push((random.below(self.calm_at), trouble));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }

    /// Everybody shuts down at work, and nothing else is wrong.
    pub(super) fn part(&mut self, random: &mut Random) {
        self.path.slow = 0;
        for process in 0..self.processes.len() {
            let at = random.between(1, 1_500) * MILLI;
            self.troubles.push((at, PlannedTrouble::Shutdown { process }));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }

    /// Faults of some sorts, at any time.
    pub(super) fn make_trouble(&mut self, random: &mut Random) {
        // Each history has some sorts of trouble, and these more than once.
        let on: Vec<bool> = (0..SORTS).map(|_| random.percent(35)).collect();
        let sorts: Vec<u64> = (0..SORTS).filter(|sort| on[*sort as usize]).collect();
        if sorts.is_empty() {
            return;
        }
        for _ in 0..random.between(1, 8) {
            let at = random.below(self.calm_at);
            let sort = random.pick(&sorts);
            let trouble = self.trouble(sort, random);
            let lasts = trouble.lasts().min(self.calm_at - at);
            self.troubles.push((at, trouble.lasting(lasts)));
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }

    /// A fault of this sort.
    fn trouble(&self, sort: u64, random: &mut Random) -> PlannedTrouble {
        let process = random.below(self.processes.len() as u64) as usize;
        let lasts = random.pick(&LONG) * MILLI;
        let late = random.percent(60).then(|| random.pick(&[0, 1, 30, 300, 1_500, 4_000]) * MILLI);
        match sort {
            0..3 => PlannedTrouble::Cut { process, late },
            3..5 => PlannedTrouble::HalfOpen { process, late },
            5..7 => PlannedTrouble::Stall { process, lasts },
            7 => PlannedTrouble::Frozen { lasts },
            8 => PlannedTrouble::RefuseConnects { lasts },
            9 => PlannedTrouble::LoseConnects { lasts },
            10..13 => {
                let all = [
                    Refusal::ReadOnly,
                    Refusal::OutOfMemory,
                    Refusal::NoReplicas,
                    Refusal::Loading,
                ];
                PlannedTrouble::Refuse { why: random.pick(&all), lasts }
            }
            13 => {
                PlannedTrouble::Restart { keeps_data: random.percent(60), lasts: lasts.min(SECOND) }
            }
            14 => PlannedTrouble::Flush,
            15 => PlannedTrouble::ServerClock { forward: random.percent(50), by: lasts },
            16 => PlannedTrouble::Pause { process, lasts },
            17 => PlannedTrouble::Block { process, lasts },
            18 => PlannedTrouble::Kill { process },
            19 => PlannedTrouble::Fork { process },
            20 => PlannedTrouble::Shutdown { process },
            21 => PlannedTrouble::LoseHints { lasts },
            22 => PlannedTrouble::Deafen { process, lasts },
            _ => PlannedTrouble::Forge { process },
        }
    }
}
