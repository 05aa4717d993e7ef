//! What several processes recorded of their holds, and whether it is possible.

use std::collections::HashMap;
use std::time::Duration;

/// Microseconds since 1970: a clock that all processes of a machine share.
pub(crate) fn micros() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("the clock is set");
    u64::try_from(since.as_micros()).expect("600,000 years fit")
}

/// How much earlier a waiter must have asked to have been in the queue for certain.
const QUEUED: u64 = 500_000;

#[derive(Debug)]
struct Hold {
    key: String,
    pid: u32,
    /// Whether its manager has no other tasks.
    single: bool,
    asked: u64,
    entered: u64,
    fence: u64,
    end: End,
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// It recorded no end.
    Unknown,
    Left(u64),
    /// The guard said that its lock was lost; it can't tell since when.
    Lost,
}

/// All holds of all processes.
#[derive(Debug, Default)]
pub(crate) struct History {
    holds: Vec<Hold>,
    pub(crate) deaths: Vec<Death>,
    /// From then on no worker asks any more.
    pub(crate) over: u64,
}

/// The end of a process.
#[derive(Debug)]
pub(crate) struct Death {
    pub(crate) pid: u32,
    pub(crate) at: u64,
    /// The locks that it had when it died, though it may not have had the time to record them.
    pub(crate) held: Vec<&'static str>,
}

/// What happened to one lock.
#[derive(Debug)]
#[expect(dead_code, reason = "read by people, when printed")]
pub(crate) struct Figures {
    pub(crate) holds: usize,
    /// Processes that died with the lock.
    pub(crate) dead_holders: usize,
    /// Ended because the process got no time for as long as the lease.
    lost: usize,
    /// The longest time that the lock was free while many waited.
    pub(crate) longest_gap: Duration,
    /// The same between one that left in peace and the next.
    longest_hand_over: Duration,
    median_hand_over: Duration,
    /// The longest wait of one that got the lock.
    longest_wait: Duration,
    /// How many got ahead of a manager that had come clearly earlier.
    pub(crate) passed: usize,
}

impl History {
    pub(crate) fn read(&mut self, text: &str) {
        let mut open: HashMap<(u32, u64, String), usize> = HashMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| words[index].parse::<u64>().expect("a number");
            let (key, pid) = (words[1].to_owned(), words[2].parse().expect("a process id"));
            match words[0] {
                "enter" => {
                    open.insert((pid, number(5), key.clone()), self.holds.len());
                    self.holds.push(Hold {
                        key,
                        pid,
                        single: words[3] == "single",
                        asked: number(4),
                        entered: number(5),
                        fence: number(6),
                        end: End::Unknown,
                    });
                }
                _ => {
                    let index = open.remove(&(pid, number(3), key)).expect("it entered before");
                    let kept = words[5] == "1";
                    self.holds[index].end = if kept { End::Left(number(4)) } else { End::Lost };
                }
            }
        }
    }

    /// Panics when two had the lock at once, or when fencing numbers went back. Returns the
    /// figures, and the events around the longest gap.
    pub(crate) fn check(&self, key: &str) -> (Figures, String) {
        let mut holds: Vec<&Hold> = self.holds.iter().filter(|hold| hold.key == key).collect();
        holds.sort_by_key(|hold| hold.entered);
        let (mut longest, mut around) = (Duration::ZERO, String::new());
        let mut hand_overs = Vec::new();
        let mut fence = 0;
        for pair in holds.windows(2) {
            let (hold, next) = (pair[0], pair[1]);
            let Some(end) = self.end(hold) else { continue };
            assert!(end <= next.entered, "two at once: {hold:?} (to {end}) and {next:?}");
            // Another may have died with the lock before it wrote down that it had it.
            let begin = self.dead_holders(key).map(|death| death.at);
            let begin = begin.filter(|at| (end..next.entered).contains(at)).max().unwrap_or(end);
            let gap = Duration::from_micros(next.entered - begin);
            if next.entered < self.over {
                if gap > longest {
                    let before = next.entered.saturating_sub(5_000_000)..next.entered;
                    let close = |death: &&Death| before.contains(&death.at);
                    let deaths: Vec<&Death> = self.deaths.iter().filter(close).collect();
                    (longest, around) = (gap, format!("{hold:?}, {next:?}, {deaths:?}"));
                }
                if let End::Left(_) = hold.end {
                    hand_overs.push(gap);
                }
            }
        }
        for hold in holds.iter().filter(|hold| hold.fence > 0) {
            assert!(hold.fence > fence, "number {fence} before {hold:?}");
            fence = hold.fence;
        }
        hand_overs.sort_unstable();
        let waits = holds.iter().map(|hold| hold.entered - hold.asked);
        let figures = Figures {
            holds: holds.len(),
            dead_holders: self.dead_holders(key).count(),
            lost: holds.iter().filter(|hold| matches!(hold.end, End::Lost)).count(),
            longest_gap: longest,
            longest_hand_over: hand_overs.last().copied().unwrap_or_default(),
            median_hand_over: hand_overs.get(hand_overs.len() / 2).copied().unwrap_or_default(),
            longest_wait: Duration::from_micros(waits.max().unwrap_or(0)),
            passed: passed(&holds),
        };
        (figures, around)
    }

    /// When a hold ended, where that is known.
    fn end(&self, hold: &Hold) -> Option<u64> {
        match hold.end {
            End::Left(at) => Some(at),
            End::Lost => None,
            End::Unknown => {
                let death = self.deaths.iter().find(|death| death.pid == hold.pid);
                Some(death.expect("only the dead leave without a word").at)
            }
        }
    }

    fn dead_holders<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Death> {
        self.deaths.iter().filter(move |death| death.held.contains(&key))
    }
}

/// How many single managers got ahead of one that had come clearly earlier.
fn passed(holds: &[&Hold]) -> usize {
    let singles: Vec<&&Hold> = holds.iter().filter(|hold| hold.single).collect();
    let mut earliest = u64::MAX;
    let mut count = 0;
    // From the last to the first: the earliest that came of those who had the lock later.
    for hold in singles.iter().rev() {
        count += usize::from(earliest.saturating_add(QUEUED) < hold.asked);
        earliest = earliest.min(hold.asked);
    }
    count
}
