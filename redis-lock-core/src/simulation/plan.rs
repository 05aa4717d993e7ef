//! The plan of a history, made before it begins: which callers want what and when, and which faults
//! happen.

use super::clock::{MILLI, SECOND};
use super::deviation::Deviation;
use super::planned_trouble::PlannedTrouble;
use super::random::Random;
use super::readers::ReadersPlan;

/// A whole history, but for the order in which things come out.
#[derive(Clone, Debug)]
pub(super) struct HistoryPlan {
    pub(super) seed: u64,
    /// When faults end and no new calls begin.
    pub(super) calm_at: u64,
    pub(super) path: PathPlan,
    /// Where callers are tasks of runtimes.
    pub(super) readers: Option<ReadersPlan>,
    /// Where there are several nodes.
    pub(super) nodes: Option<NodesPlan>,
    pub(super) processes: Vec<ProcessPlan>,
    pub(super) keys: Vec<Sort>,
    pub(super) planned_calls: Vec<PlannedCall>,
    pub(super) troubles: Vec<(u64, PlannedTrouble)>,
    /// What happens otherwise than usual to the message with this number, counted from 0 on.
    pub(super) deviations: Vec<(usize, Deviation)>,
}

/// How the network behaves without anything special.
#[derive(Clone, Debug)]
pub(super) struct PathPlan {
    /// From one end to the other.
    pub(super) latency: u64,
    /// How many messages of a thousand take long.
    pub(super) slow: u64,
    /// How many hints of a hundred are lost, come twice, or late.
    pub(super) bad_hints: u64,
    /// How many commands of a hundred take another round.
    pub(super) rounds: u64,
    /// Of a hundred transactions, how many are late or lose their connection, where there are no scripts.
    pub(super) late_transactions: Option<u64>,
    /// Whether a server that does not answer in time is replaced, and answers later.
    pub(super) replaces: bool,
    /// Whether an acquisition or a renewal counts when a replica has it.
    pub(super) has_replicas: bool,
    /// Of a hundred of them, how many no replica has in time.
    pub(super) unconfirmed: u64,
    /// How long the engine's thread takes to run.
    pub(super) sluggish: u64,
}

/// Several nodes in a plan.
#[derive(Clone, Debug)]
pub(super) struct NodesPlan {
    /// How many shards there are.
    pub(super) count: usize,
    /// Which shard has the slot of each key first.
    pub(super) owners: Vec<usize>,
    /// How far the clock of each node is ahead of a right one.
    pub(super) ahead: Vec<i64>,
    /// Nothing goes wrong but that slots move.
    pub(super) only_moves: bool,
    /// There is one shard that has all slots, and sentinels say which of its nodes serves.
    pub(super) has_sentinels: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ProcessPlan {
    pub(super) rate: i64,
    pub(super) command_timeout: u64,
}

/// What a key is used as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    Mutex,
    ReadWrite,
    Permit(u32),
}

/// One acquisition, and what is done with the hold.
#[derive(Clone, Debug)]
pub(super) struct PlannedCall {
    pub(super) process: usize,
    pub(super) task: usize,
    /// After the planned call of the same task before.
    pub(super) after: u64,
    pub(super) keys: Vec<usize>,
    pub(super) writes: bool,
    pub(super) ttl: u64,
    /// `None` waits for ever, zero not at all.
    pub(super) wait: Option<u64>,
    pub(super) fenced: bool,
    pub(super) fair: bool,
    pub(super) renew: bool,
    pub(super) min_hold: Option<u64>,
    pub(super) max_hold: Option<u64>,
    pub(super) linger: Option<u64>,
    /// For how long success is remembered.
    pub(super) once: Option<u64>,
    /// Whether it shares its value.
    pub(super) share: bool,
    /// How many calls may wait.
    pub(super) queue: Option<usize>,
    /// Whether it ends older calls.
    pub(super) newest: bool,
    /// How much longer the server keeps the key; zero for no margin.
    pub(super) margin: u64,
    /// The call is dropped after so many polls, or so much time.
    pub(super) polls: Option<u32>,
    pub(super) patience: Option<u64>,
    pub(super) acts: Vec<Act>,
    pub(super) ending: CallEnding,
    /// The call that adopts the hold if this one gives it away, or that gets a copy of a token
    /// which this one has adopted.
    pub(super) heir: Option<Box<Self>>,
    /// Set when the history begins.
    pub(super) number: usize,
}

/// What is done with a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Work(u64),
    Verify,
    Extend(u64),
    Downgrade,
    /// A caller ends all holds of its key by force.
    Force,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallEnding {
    Release,
    Drop,
    /// It has succeeded.
    Complete,
    /// It has succeeded, and those who wait get its value.
    Share,
    /// The release is waited for, but not for long.
    Impatient,
    /// Its token goes to another process.
    Detach,
}

impl HistoryPlan {
    /// Lets callers be tasks of runtimes in every other history. In the others they are plain threads.
    fn add_readers(&mut self) {
        if self.seed.is_multiple_of(2) {
            self.readers = Some(self.readers());
        }
    }

    /// The history of a seed in which callers are tasks of runtimes.
    pub(super) fn read_by_tasks(seed: u64) -> Self {
        let mut plan = Self::of(seed);
        plan.readers = Some(plan.readers());
        plan
    }

    fn readers(&self) -> ReadersPlan {
        ReadersPlan::of(self.seed, self.processes.len() as u64, self.calm_at)
    }

    pub(super) fn of(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let calm_at = random.between(3_000, 9_000) * MILLI;
        let is_calm = random.percent(12);
        let path = PathPlan {
            latency: random.pick(&[50, 100, 300, 1_000, 5_000, 40_000, 110_000]) * 1_000,
            slow: if is_calm { 0 } else { random.pick(&[0, 0, 10, 40]) },
            bad_hints: if is_calm { 0 } else { random.pick(&[0, 5, 40]) },
            rounds: random.pick(&[0, 0, 10]),
            late_transactions: None,
            replaces: false,
            has_replicas: false,
            unconfirmed: 0,
            sluggish: random.pick(&[20_000, 100_000, 2_000_000]),
        };
        let keys = (0..random.between(1, 3)).map(|_| sort(random)).collect::<Vec<_>>();
        let count = random.between(2, 4) as usize;
        let processes: Vec<_> = (0..count).map(|_| process(random)).collect();
        // On a path that is slower than the time limit of commands nothing would ever succeed.
        let least = processes.iter().map(|process| process.command_timeout).min().unwrap_or(0);
        let path = PathPlan { latency: path.latency.min(least.max(500 * MILLI) / 16), ..path };
        let mut plan = Self {
            seed,
            calm_at,
            path,
            readers: None,
            nodes: None,
            processes,
            keys,
            planned_calls: Vec::new(),
            troubles: Vec::new(),
            deviations: Vec::new(),
        };
        let ttls = [random.pick(&TTLS), random.pick(&TTLS)];
        for process in 0..count {
            for task in 0..random.between(1, 4) as usize {
                for _ in 0..random.between(1, 6) {
                    let planned = plan.call(process, task, &ttls, random);
                    plan.planned_calls.push(planned);
                }
            }
        }
        match random.below(20) {
            0 => plan.with_short_waits(random),
            1 => plan.hand_on(random),
            2 => plan.extend_over_cuts(random),
            3 => plan.part(random),
            _ if is_calm => {}
            _ => plan.make_trouble(random),
        }
        plan.add_margins();
        plan.add_successes();
        plan.name_heirs();
        plan.add_readers();
        plan
    }

    /// In a quarter of the histories some holds have a margin.
    fn add_margins(&mut self) {
        let random = &mut Random::new(self.seed ^ 0x6d61_7267);
        if random.percent(25) {
            for planned in &mut self.planned_calls {
                planned.margin = random.pick(&[0, 300, 1_000, 3_000]) * MILLI;
            }
        }
    }

    /// Many callers that don't wait, or not for long, beside one that holds for long, on a slow
    /// path.
    fn with_short_waits(&mut self, random: &mut Random) {
        let latency = random.pick(&[5, 20, 31]) * MILLI;
        (self.path.latency, self.path.slow, self.keys[0]) = (latency, 0, Sort::Mutex);
        for planned in &mut self.planned_calls {
            planned.keys = vec![0];
            planned.after = random.below(3 * latency);
            (planned.polls, planned.min_hold, planned.max_hold) = (None, None, None);
            if planned.process == 0 {
                planned.acts = vec![Act::Work(900 * MILLI)];
            } else if random.percent(50) {
                (planned.wait, planned.patience) = (Some(0), None);
            } else {
                (planned.wait, planned.patience) =
                    (None, Some(random.between(latency, 6 * latency)));
            }
        }
    }

    /// Leases that are half over when the answer arrives, and many callers that want them for a
    /// moment.
    fn hand_on(&mut self, random: &mut Random) {
        self.path.latency = random.between(20, 110) * MILLI;
        let ttl = random.pick(&[300, 400]) * MILLI;
        self.processes.iter_mut().for_each(|process| process.command_timeout = 2 * SECOND);
        for planned in &mut self.planned_calls {
            (planned.keys, planned.ttl, planned.wait, planned.renew) = (vec![0], ttl, None, true);
            (planned.min_hold, planned.max_hold, planned.patience, planned.polls) =
                (None, None, None, None);
            planned.after = 0;
            planned.acts = vec![Act::Work(random.below(4) * MILLI)];
        }
    }

    fn call(&self, process: usize, task: usize, ttls: &[u64], random: &mut Random) -> PlannedCall {
        let first = random.below(self.keys.len() as u64) as usize;
        let mut keys = vec![first];
        if self.keys[first] == Sort::Mutex && random.percent(15) {
            keys = (0..self.keys.len()).filter(|key| self.keys[*key] == Sort::Mutex).collect();
            if keys.len() == 1 && random.percent(70) {
                keys = vec![first];
            }
        }
        let is_mutex = self.keys[first] == Sort::Mutex;
        let ttl = if random.percent(70) { random.pick(ttls) } else { random.pick(&TTLS) };
        let ttl = ttl * MILLI;
        let renew = random.percent(90);
        let wait = match random.below(10) {
            0..3 => Some(0),
            3..6 => Some(random.pick(&[20, 100, 500, 1_500, 4_000]) * MILLI),
            _ => None,
        };
        let some = |chance, random: &mut Random, of: &[u64]| {
            random.percent(chance).then(|| random.pick(of) * MILLI)
        };
        let min_hold = some(7, random, &[20, 200, 700]).filter(|least| *least <= ttl);
        let max_hold = some(10, random, &[150, 400, 1_000, 3_000])
            .filter(|most| renew && min_hold.is_none_or(|least| least <= *most))
            // A hold that ends before its answer can arrive would never be acquired.
            .filter(|most| *most > self.path.latency * 6);
        PlannedCall {
            process,
            task,
            after: random.pick(&[0, 0, 0, 1, 20, 150, 400, 1_000]) * MILLI,
            writes: random.percent(40),
            ttl,
            wait,
            fenced: random.percent(30),
            fair: random.percent(85),
            renew,
            min_hold,
            max_hold,
            margin: 0,
            once: None,
            share: false,
            queue: None,
            newest: false,
            linger: some(12, random, &[50, 300, 1_000, 30_000, 30_000])
                .filter(|_| is_mutex && keys.len() == 1),
            polls: random.percent(10).then(|| random.between(1, 4) as u32),
            patience: some(12, random, &[1, 10, 90, 300, 1_000]),
            acts: (0..random.between(1, 3)).map(|_| act(random)).collect(),
            ending: match random.below(20) {
                0..9 => CallEnding::Release,
                9..16 => CallEnding::Drop,
                16..19 => CallEnding::Impatient,
                _ if keys.len() == 1 && is_mutex => CallEnding::Detach,
                _ => CallEnding::Drop,
            },
            keys,
            heir: None,
            number: 0,
        }
    }

    pub(super) fn has_sentinels(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.has_sentinels)
    }

    /// Calls and faults in one list, to leave some out.
    pub(super) fn items(&self) -> usize {
        self.planned_calls.len() + self.troubles.len()
    }

    /// The same plan with only some of its items.
    pub(super) fn with(&self, keeps: &[bool]) -> Self {
        let (planned_calls, troubles) = keeps.split_at(self.planned_calls.len());
        let mut plan = self.clone();
        let mut kept = planned_calls.iter();
        plan.planned_calls.retain(|_| kept.next().copied().unwrap_or(true));
        let mut kept = troubles.iter();
        plan.troubles.retain(|_| kept.next().copied().unwrap_or(true));
        plan
    }

    /// The longest time that a lease stays unused.
    pub(super) fn longest_linger(&self) -> u64 {
        self.planned_calls.iter().filter_map(|planned| planned.linger).max().unwrap_or(0)
    }

    pub(super) fn longest_command_timeout(&self) -> u64 {
        self.processes.iter().map(|process| process.command_timeout).max().unwrap_or(0)
    }

    /// The longest lease that a caller asks for.
    pub(super) fn longest(&self) -> u64 {
        self.each_call().map(PlannedCall::longest).max().unwrap_or(0)
    }

    /// How long locks that were given away stay when they are not adopted.
    pub(super) fn given_away(&self) -> u64 {
        let given = self.each_call().filter(|planned| planned.ending == CallEnding::Detach);
        given.map(PlannedCall::longest).sum()
    }

    fn each_call(&self) -> impl Iterator<Item = &PlannedCall> {
        let heirs = |planned| {
            std::iter::successors(Some(planned), |planned: &&PlannedCall| planned.heir.as_deref())
        };
        self.planned_calls.iter().flat_map(heirs)
    }
}

impl PlannedCall {
    /// The longest lease that it asks for.
    fn longest(&self) -> u64 {
        let extended = self.acts.iter().map(|act| match act {
            Act::Extend(ttl) => *ttl,
            _ => 0,
        });
        extended.max().unwrap_or(0).max(self.ttl) + self.margin
    }
}

pub(super) const TTLS: [u64; 7] = [300, 400, 600, 1_000, 2_000, 5_000, 30_000];

fn sort(random: &mut Random) -> Sort {
    match random.below(10) {
        0..6 => Sort::Mutex,
        6..8 => Sort::ReadWrite,
        _ => Sort::Permit(random.between(1, 2) as u32),
    }
}

fn process(random: &mut Random) -> ProcessPlan {
    ProcessPlan {
        rate: random.pick(&[0, 0, 9_000, -9_000, 4_000, -1_000]),
        command_timeout: random.pick(&[2_000, 2_000, 500, 100]) * MILLI,
    }
}

pub(super) fn act(random: &mut Random) -> Act {
    match random.below(20) {
        0..12 => Act::Work(random.pick(&[0, 1, 5, 30, 100, 400, 1_200, 3_000]) * MILLI),
        12..14 => Act::Verify,
        14..17 => Act::Extend(random.pick(&[500, 1_500, 6_000, 30_000]) * MILLI),
        17..19 => Act::Downgrade,
        _ => Act::Force,
    }
}
