//! Tasks that read: on which runtimes callers live, and what happens to the tasks that read there.

use super::clock::MILLI;
use super::random::{self, Random};

/// Makes these random numbers differ from others of the same seed.
const OF_READERS: u64 = 118;

/// Runtimes in a plan, which each process has.
#[derive(Clone, Debug)]
pub(super) struct ReadersPlan {
    pub(super) runtimes: usize,
    /// After how many commands a task tries to become the reader.
    pub(super) opens_after: u32,
    /// Before how many of a thousand polls a task that reads is blocked.
    pub(super) blocks: u64,
    /// Before how many of a thousand polls it is dropped.
    pub(super) drops: u64,
    /// Before how many of a hundred polls a caller is moved to another runtime, or to a plain thread.
    pub(super) moves: u64,
    /// Of a hundred registrations, how many fail.
    pub(super) unwatchable: u64,
    /// Of a hundred attempts to send, how many find that the socket takes only a part.
    pub(super) fills: u64,
    /// When a runtime of a process ends with all its tasks. Another one begins in its place.
    pub(super) ends: Vec<(u64, usize)>,
}

impl ReadersPlan {
    /// That of a history of this seed, with so many processes, which is calm from then on.
    pub(super) fn of(seed: u64, processes: u64, calm_at: u64) -> Self {
        let random = &mut Random::new(random::hash([seed, OF_READERS, 0, 0]));
        let count = if random.percent(30) { random.between(1, 6) } else { 0 };
        let end = |random: &mut Random| (random.below(calm_at), random.below(processes) as usize);
        Self {
            runtimes: random.between(1, 3) as usize,
            opens_after: random.pick(&[1, 1, 2, 5, 20]),
            blocks: random.pick(&[0, 0, 20, 100]),
            drops: random.pick(&[0, 0, 20, 100]),
            moves: random.pick(&[0, 0, 20]),
            unwatchable: random.pick(&[0, 0, 0, 30]),
            fills: random.pick(&[0, 0, 10, 40]),
            ends: (0..count).map(|_| end(random)).collect(),
        }
    }

    /// For how long a task that reads is blocked: times on both sides of the limit, and long ones.
    pub(super) const BLOCKS: [u64; 7] = [1, 5, 19, 21, 60, 300, 1_200];

    /// The same with less in it.
    pub(super) fn simpler(&self) -> Vec<Self> {
        vec![
            Self { ends: Vec::new(), ..self.clone() },
            Self { fills: 0, ..self.clone() },
            Self { unwatchable: 0, ..self.clone() },
            Self { moves: 0, ..self.clone() },
            Self { drops: 0, ..self.clone() },
            Self { blocks: 0, ..self.clone() },
            Self { runtimes: 1, ..self.clone() },
        ]
    }
}

/// For how long a socket takes nothing.
pub(super) fn full_for(chance: u64) -> u64 {
    (100 + chance % 3_000) * MILLI / 1_000
}
