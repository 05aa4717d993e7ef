use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

/// What workers tell of their holds, in one line each.
///
/// Times are nanoseconds of the system's boot clock, which all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A guard was returned. It was valid at `at`.
    Granted { hold: u64, key: u64, fence: u64, at: u64 },
    /// It was still valid at `at`, and is not looked at any more.
    Ended { hold: u64, at: u64 },
    /// A read-modify-write of the fenced store was accepted.
    Fenced { key: u64 },
    /// One of the other store was made.
    Plain { key: u64 },
    /// Somebody else had the lock for as long as we waited.
    Busy,
    /// The server failed.
    Failed,
    /// A hold ended in a loss.
    Lost,
    /// A call took longer than it may, in milliseconds.
    Late { took: u64 },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { hold, key, fence, at } => write!(f, "g {hold} {key} {fence} {at}"),
            Self::Ended { hold, at } => write!(f, "e {hold} {at}"),
            Self::Fenced { key } => write!(f, "f {key}"),
            Self::Plain { key } => write!(f, "p {key}"),
            Self::Busy => f.write_str("b"),
            Self::Failed => f.write_str("x"),
            Self::Lost => f.write_str("l"),
            Self::Late { took } => write!(f, "t {took}"),
        }
    }
}

impl Event {
    /// Reads a line; `None` for one that was cut when its writer was killed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(match kind {
            "g" => {
                Self::Granted { hold: number()?, key: number()?, fence: number()?, at: number()? }
            }
            "e" => Self::Ended { hold: number()?, at: number()? },
            "f" => Self::Fenced { key: number()? },
            "p" => Self::Plain { key: number()? },
            "b" => Self::Busy,
            "x" => Self::Failed,
            "l" => Self::Lost,
            "t" => Self::Late { took: number()? },
            _ => return None,
        })
    }
}

/// A hold's number begins with its worker's, and counts up from there.
pub(crate) const WORKER_SHIFT: u32 = 40;

/// Everything that happened, and what must not have happened in it.
#[derive(Debug, Default)]
pub(crate) struct History {
    holds: HashMap<u64, Hold>,
    pub(crate) granted: u64,
    pub(crate) busy: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) late: Vec<u64>,
    pub(crate) fenced: BTreeMap<u64, u64>,
    pub(crate) plain: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    key: u64,
    fence: u64,
    start: u64,
    /// The last time it was seen valid. A worker that was killed never says: its start counts.
    end: u64,
}

impl History {
    pub(crate) fn add(&mut self, event: Event) {
        match event {
            Event::Granted { hold, key, fence, at } => {
                self.granted += 1;
                self.holds.insert(hold, Hold { key, fence, start: at, end: at });
            }
            Event::Ended { hold, at } => {
                if let Some(hold) = self.holds.get_mut(&hold) {
                    hold.end = hold.end.max(at);
                }
            }
            Event::Fenced { key } => *self.fenced.entry(key).or_default() += 1,
            Event::Plain { key } => *self.plain.entry(key).or_default() += 1,
            Event::Busy => self.busy += 1,
            Event::Failed => self.failed += 1,
            Event::Lost => self.lost += 1,
            Event::Late { took } => self.late.push(took),
        }
    }

    /// How many holds the worker with this number has had.
    pub(crate) fn granted_to(&self, worker: u64) -> usize {
        self.holds.keys().filter(|hold| *hold >> WORKER_SHIFT == worker).count()
    }

    /// Holds of one key that were valid at the same time, among the keys that `strict` names; and
    /// holds whose fences do not rise in the order of holding.
    pub(crate) fn violations(&self, strict: impl Fn(u64) -> bool) -> Vec<String> {
        let mut by_key: BTreeMap<u64, Vec<Hold>> = BTreeMap::new();
        for hold in self.holds.values() {
            by_key.entry(hold.key).or_default().push(*hold);
        }
        let mut violations = Vec::new();
        for (key, mut holds) in by_key {
            holds.sort_unstable_by_key(|hold| hold.start);
            // The one that reaches furthest of those that began before.
            let mut last: Option<Hold> = None;
            let mut highest: Option<Hold> = None;
            // A fence is only late if the hold with the higher one had ended before.
            let mut ended: Vec<Hold> = Vec::new();
            for hold in holds {
                if let Some(before) = last.filter(|before| before.end > hold.start)
                    && strict(key)
                {
                    violations.push(format!(
                        "key {key}: fence {} was valid until {} us after fence {} was granted",
                        before.fence,
                        (before.end - hold.start) / 1000,
                        hold.fence
                    ));
                }
                ended.retain(|before| {
                    let over = before.end < hold.start;
                    if over && highest.is_none_or(|highest| highest.fence < before.fence) {
                        highest = Some(*before);
                    }
                    !over
                });
                if let Some(highest) = highest.filter(|highest| highest.fence >= hold.fence) {
                    violations.push(format!(
                        "key {key}: fence {} was granted after a hold with fence {} had ended",
                        hold.fence, highest.fence
                    ));
                }
                ended.push(hold);
                if last.is_none_or(|last| last.end < hold.end) {
                    last = Some(hold);
                }
            }
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(holds: &[(u64, u64, u64)]) -> History {
        let mut history = History::default();
        for (hold, (fence, start, end)) in (0..).zip(holds.iter().copied()) {
            history.add(Event::Granted { hold, key: 1, fence, at: start });
            history.add(Event::Ended { hold, at: end });
        }
        history
    }

    fn all(history: &History) -> usize {
        history.violations(|_| true).len()
    }

    #[test]
    fn holds_one_after_the_other_are_fine_in_whatever_order_they_are_told() {
        assert_eq!(all(&history(&[(1, 10, 20), (2, 20, 30), (3, 31, 40)])), 0);
        assert_eq!(all(&history(&[(3, 31, 40), (1, 10, 20), (2, 20, 30)])), 0);
    }

    #[test]
    fn an_overlap_is_seen_behind_shorter_holds_as_well() {
        assert_eq!(all(&history(&[(1, 10, 21), (2, 20, 30)])), 1);
        assert_eq!(all(&history(&[(1, 10, 100), (2, 20, 30), (3, 90, 95)])), 2);
    }

    #[test]
    fn an_overlap_is_allowed_where_data_are_lost_on_purpose() {
        assert_eq!(history(&[(1, 10, 21), (2, 20, 30)]).violations(|_| false).len(), 0);
    }

    #[test]
    fn a_fence_that_falls_or_repeats_is_seen() {
        assert_eq!(all(&history(&[(2, 10, 20), (1, 30, 40)])), 1);
        assert_eq!(all(&history(&[(2, 10, 20), (2, 30, 40)])), 1);
    }

    #[test]
    fn a_hold_of_a_killed_worker_counts_from_its_start() {
        let mut history = history(&[(2, 15, 20)]);
        history.add(Event::Granted { hold: 9, key: 1, fence: 1, at: 10 });
        assert_eq!(all(&history), 0);
        history.add(Event::Granted { hold: 10, key: 1, fence: 3, at: 17 });
        assert_eq!(all(&history), 1);
    }

    #[test]
    fn events_survive_the_pipe() {
        for event in [
            Event::Granted { hold: u64::MAX, key: 2, fence: 3, at: 4 },
            Event::Ended { hold: 5, at: 6 },
            Event::Fenced { key: 7 },
            Event::Plain { key: 8 },
            Event::Busy,
            Event::Failed,
            Event::Lost,
            Event::Late { took: 9 },
        ] {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
        assert_eq!(Event::parse("g 1 2"), None);
    }
}
