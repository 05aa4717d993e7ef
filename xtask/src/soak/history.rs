use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::kind::Kind;

/// What workers report of their holds, one line for each event.
///
/// Times are nanoseconds of the system's boot clock, which all processes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A guard was returned. It was valid at `at`.
    Granted { hold: u64, kind: Kind, fence: Option<u64>, at: u64, keys: Vec<u64> },
    /// It was still valid at `at`, and is not looked at any more.
    Ended { hold: u64, at: u64 },
    /// A read-modify-write of the fenced store was accepted.
    Fenced { key: u64 },
    /// A read-modify-write of the plain store was made.
    Plain { key: u64 },
    /// The lock was busy for the whole wait.
    Busy,
    /// The server failed.
    Failed,
    /// A hold ended in a loss.
    Lost,
    /// A call took longer than it may, in milliseconds.
    Late { took: u64 },
    /// A guard's remaining time was compared with the server's ttl, and was longer by this many
    /// microseconds.
    Compared { hold: u64, excess: u64 },
    /// A manager was shut down, and another took its place.
    ShutDown,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { hold, kind, fence, at, keys } => {
                write!(f, "g {hold} {kind} {} {at}", fence.unwrap_or(0))?;
                keys.iter().try_for_each(|key| write!(f, " {key}"))
            }
            Self::Ended { hold, at } => write!(f, "e {hold} {at}"),
            Self::Fenced { key } => write!(f, "f {key}"),
            Self::Plain { key } => write!(f, "p {key}"),
            Self::Busy => f.write_str("b"),
            Self::Failed => f.write_str("x"),
            Self::Lost => f.write_str("l"),
            Self::Late { took } => write!(f, "t {took}"),
            Self::Compared { hold, excess } => write!(f, "c {hold} {excess}"),
            Self::ShutDown => f.write_str("s"),
        }
    }
}

impl Event {
    /// Reads a line; `None` for one that was cut when its writer was killed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let event = words.next()?;
        if event == "g" {
            return Self::granted(words);
        }
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(match event {
            "e" => Self::Ended { hold: number()?, at: number()? },
            "f" => Self::Fenced { key: number()? },
            "p" => Self::Plain { key: number()? },
            "b" => Self::Busy,
            "x" => Self::Failed,
            "l" => Self::Lost,
            "t" => Self::Late { took: number()? },
            "c" => Self::Compared { hold: number()?, excess: number()? },
            "s" => Self::ShutDown,
            _ => return None,
        })
    }

    fn granted<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let hold = words.next()?.parse().ok()?;
        let kind = Kind::parse(words.next()?)?;
        let fence = Some(words.next()?.parse().ok()?).filter(|fence| *fence > 0);
        let at = words.next()?.parse().ok()?;
        let keys: Vec<u64> = words.map(|key| key.parse().ok()).collect::<Option<_>>()?;
        (!keys.is_empty()).then_some(Self::Granted { hold, kind, fence, at, keys })
    }
}

/// A hold's number begins with its worker's, and counts up from there.
pub(crate) const WORKER_SHIFT: u32 = 40;

/// Everything that happened, and what must not have happened in it.
#[derive(Debug, Default)]
pub(crate) struct History {
    holds: HashMap<u64, Hold>,
    /// How many holds of each kind there were.
    pub(crate) granted: BTreeMap<&'static str, u64>,
    pub(crate) busy: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) late: Vec<u64>,
    /// How often a guard and its server were compared, and what was wrong then.
    pub(crate) compared: u64,
    pub(crate) excesses: Vec<String>,
    pub(crate) shut_down: u64,
    pub(crate) fenced: BTreeMap<u64, u64>,
    pub(crate) plain: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Hold {
    number: u64,
    kind: Kind,
    keys: Vec<u64>,
    fence: Option<u64>,
    start: u64,
    /// The last time it was seen valid. A worker that was killed never says: its start counts.
    end: u64,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, number) = (self.number >> WORKER_SHIFT, self.number % (1 << WORKER_SHIFT));
        write!(f, "{} hold {number} of worker {worker}", self.kind.name())?;
        self.fence.map_or(Ok(()), |fence| write!(f, " with fence {fence}"))
    }
}

impl Hold {
    /// The hold of the same key that was valid when this one began although it must not have been.
    fn clash<'a>(&self, valid: &[&'a Self]) -> Option<&'a Self> {
        // Of several, the one that reaches furthest.
        let furthest =
            |holds: &mut dyn Iterator<Item = &'a Self>| holds.max_by_key(|hold| hold.end);
        let mut holds = valid.iter().copied();
        match self.kind {
            Kind::Mutex | Kind::All | Kind::Write => furthest(&mut holds),
            Kind::Read => furthest(&mut holds.filter(|hold| hold.kind != Kind::Read)),
            Kind::Permit(limit) => {
                let (permits, others): (Vec<_>, Vec<_>) =
                    holds.partition(|hold| matches!(hold.kind, Kind::Permit(_)));
                let full = permits.len() as u64 >= u64::from(limit);
                let permits = if full { permits } else { Vec::new() };
                furthest(&mut others.into_iter().chain(permits))
            }
        }
    }
}

impl History {
    pub(crate) fn add(&mut self, event: Event) {
        match event {
            Event::Granted { hold: number, kind, fence, at, keys } => {
                *self.granted.entry(kind.name()).or_default() += 1;
                let hold = Hold { number, kind, keys, fence, start: at, end: at };
                self.holds.insert(number, hold);
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
            Event::Compared { hold, excess } => self.compared(hold, excess),
            Event::ShutDown => self.shut_down += 1,
        }
    }

    fn compared(&mut self, hold: u64, excess: u64) {
        self.compared += 1;
        if excess > 0 {
            let hold = self.holds.get(&hold).map_or_else(|| hold.to_string(), Hold::to_string);
            self.excesses.push(format!("{hold} believed in {excess} us too many"));
        }
    }

    /// How many holds there were, of all kinds.
    pub(crate) fn total(&self) -> u64 {
        self.granted.values().sum()
    }

    /// How many holds the worker with this number has had.
    pub(crate) fn granted_to(&self, worker: u64) -> usize {
        self.holds.keys().filter(|hold| *hold >> WORKER_SHIFT == worker).count()
    }

    /// Holds of one key that were valid at the same time although their kinds exclude each other,
    /// among the keys that `strict` names; and holds whose fences do not rise in the order of
    /// holding. A hold of several keys is one of each.
    pub(crate) fn violations(&self, strict: impl Fn(u64) -> bool) -> Vec<String> {
        let mut by_key: BTreeMap<u64, Vec<&Hold>> = BTreeMap::new();
        for hold in self.holds.values() {
            for key in &hold.keys {
                by_key.entry(*key).or_default().push(hold);
            }
        }
        let mut violations = Vec::new();
        for (key, mut holds) in by_key {
            holds.sort_unstable_by_key(|hold| hold.start);
            if strict(key) {
                overlaps(key, &holds, &mut violations);
            }
            late_fences(key, &holds, &mut violations);
        }
        violations
    }
}

/// Finds what must not overlap among holds of one key, in the order of their beginning.
fn overlaps(key: u64, holds: &[&Hold], violations: &mut Vec<String>) {
    let mut valid: Vec<&Hold> = Vec::new();
    for hold in holds {
        // Of holds that overlap, one begins while the others are valid.
        valid.retain(|before| before.end > hold.start);
        if let Some(before) = hold.clash(&valid) {
            let micros = (before.end - hold.start) / 1000;
            let number = valid.len();
            violations.push(format!(
                "key {key}: {before} was valid until {micros} us after {hold} was granted, \
                 with {number} valid at that time"
            ));
        }
        valid.push(hold);
    }
}

/// Finds the fences that do not rise among holds of one key, in the order of their beginning.
fn late_fences(key: u64, holds: &[&Hold], violations: &mut Vec<String>) {
    let mut highest: Option<&Hold> = None;
    // A fence is only late if the hold with the higher one had ended before.
    let mut ended: Vec<&Hold> = Vec::new();
    for hold in holds.iter().filter(|hold| hold.fence.is_some()) {
        ended.retain(|before| {
            let over = before.end < hold.start;
            if over && highest.is_none_or(|highest| highest.fence < before.fence) {
                highest = Some(before);
            }
            !over
        });
        if let Some(highest) = highest.filter(|highest| highest.fence >= hold.fence) {
            violations.push(format!("key {key}: {hold} was granted after {highest} had ended"));
        }
        ended.push(hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutex(hold: u64, fence: u64, at: u64) -> Event {
        Event::Granted { hold, kind: Kind::Mutex, fence: Some(fence), at, keys: vec![1] }
    }

    fn history(holds: &[(u64, u64, u64)]) -> History {
        let mut history = History::default();
        for (hold, (fence, start, end)) in (0..).zip(holds.iter().copied()) {
            history.add(mutex(hold, fence, start));
            history.add(Event::Ended { hold, at: end });
        }
        history
    }

    /// Holds of any kind, of the keys that are named, with fences that rise.
    fn kinds(holds: &[(Kind, &[u64], u64, u64)]) -> History {
        let mut history = History::default();
        for (hold, (kind, keys, start, end)) in (0..).zip(holds.iter().copied()) {
            let fence = kind.is_fenced().then_some(hold + 1);
            history.add(Event::Granted { hold, kind, fence, at: start, keys: keys.to_vec() });
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
        history.add(mutex(9, 1, 10));
        assert_eq!(all(&history), 0);
        history.add(mutex(10, 3, 17));
        assert_eq!(all(&history), 1);
    }

    #[test]
    fn two_writers_are_seen() {
        let writers = [(Kind::Write, &[7][..], 10, 21), (Kind::Write, &[7], 20, 30)];
        assert_eq!(all(&kinds(&writers)), 1);
    }

    #[test]
    fn a_writer_with_a_reader_is_seen_whoever_came_first() {
        let (read, write) = (Kind::Read, Kind::Write);
        assert_eq!(all(&kinds(&[(write, &[7], 10, 21), (read, &[7], 20, 30)])), 1);
        assert_eq!(all(&kinds(&[(read, &[7], 10, 21), (write, &[7], 20, 30)])), 1);
        // Behind a reader that is in nobody's way.
        let behind = [(read, &[7][..], 10, 50), (read, &[7], 20, 30), (write, &[7], 40, 45)];
        assert_eq!(all(&kinds(&behind)), 1);
    }

    #[test]
    fn one_permit_too_many_is_seen() {
        let two = Kind::Permit(2);
        let three = [(two, &[9][..], 10, 40), (two, &[9], 20, 40), (two, &[9], 39, 50)];
        assert_eq!(all(&kinds(&three)), 1);
    }

    #[test]
    fn several_keys_meet_mutexes_and_each_other_on_each_key() {
        let (several, one) = (Kind::All, Kind::Mutex);
        assert_eq!(all(&kinds(&[(several, &[1, 3], 10, 21), (one, &[3], 20, 30)])), 1);
        assert_eq!(all(&kinds(&[(one, &[1], 10, 21), (several, &[3, 1], 20, 30)])), 1);
        assert_eq!(all(&kinds(&[(several, &[1, 3], 10, 21), (several, &[3, 5], 20, 30)])), 1);
        assert_eq!(all(&kinds(&[(several, &[1, 3], 10, 21), (several, &[1, 3], 20, 30)])), 2);
    }

    #[test]
    fn fences_rise_from_kind_to_kind() {
        let mut history = History::default();
        let all_of = |hold, fence, at, keys: &[u64]| Event::Granted {
            hold,
            kind: Kind::All,
            fence: Some(fence),
            at,
            keys: keys.to_vec(),
        };
        history.add(all_of(1, 5, 10, &[1, 3]));
        history.add(mutex(2, 6, 20));
        assert_eq!(all(&history), 0);
        history.add(mutex(3, 4, 30));
        assert_eq!(all(&history), 1);
        history.add(all_of(4, 5, 40, &[3]));
        assert_eq!(all(&history), 2);
    }

    #[test]
    fn what_may_overlap_does() {
        let (read, write, two) = (Kind::Read, Kind::Write, Kind::Permit(2));
        let legal = [
            (write, &[7][..], 10, 20),
            (read, &[7], 20, 40),
            (read, &[7], 25, 50),
            (read, &[7], 30, 35),
            (write, &[7], 50, 60),
            (two, &[9], 10, 20),
            (two, &[9], 15, 40),
            (two, &[9], 20, 30),
            (two, &[9], 35, 50),
            (Kind::All, &[1, 3], 10, 20),
            (Kind::Mutex, &[5], 12, 18),
            (Kind::Mutex, &[1], 20, 30),
            (Kind::All, &[5, 3], 20, 30),
        ];
        assert_eq!(kinds(&legal).violations(|_| true), [] as [String; 0]);
        assert_eq!(kinds(&legal).granted["permit"], 4);
    }

    #[test]
    fn a_belief_beyond_the_servers_word_is_seen() {
        let mut history = history(&[(1, 10, 20)]);
        history.add(Event::Compared { hold: 0, excess: 0 });
        assert_eq!((history.compared, history.excesses.len()), (1, 0));
        history.add(Event::Compared { hold: 0, excess: 300 });
        assert_eq!(
            history.excesses,
            ["mutex hold 0 of worker 0 with fence 1 believed in 300 us too many"]
        );
    }

    #[test]
    fn events_survive_the_pipe() {
        for event in [
            mutex(u64::MAX, 3, 4),
            Event::Granted { hold: 1, kind: Kind::Read, fence: None, at: 4, keys: vec![7] },
            Event::Granted { hold: 1, kind: Kind::Write, fence: Some(2), at: 4, keys: vec![7] },
            Event::Granted { hold: 1, kind: Kind::Permit(12), fence: None, at: 4, keys: vec![9] },
            Event::Granted { hold: 1, kind: Kind::All, fence: Some(2), at: 4, keys: vec![5, 1] },
            Event::Ended { hold: 5, at: 6 },
            Event::Fenced { key: 7 },
            Event::Plain { key: 8 },
            Event::Busy,
            Event::Failed,
            Event::Lost,
            Event::Late { took: 9 },
            Event::Compared { hold: 7, excess: 0 },
            Event::ShutDown,
        ] {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
        assert_eq!(Event::parse("g 1 m 2"), None);
        assert_eq!(Event::parse("g 1 m 2 3"), None);
    }
}
