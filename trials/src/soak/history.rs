use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use super::event::Event;
use super::excuses::Excuses;
use super::forces::Forces;
use super::jobs::Jobs;
use super::kind::{Kind, is_forced, is_home, is_volatile};
use super::losses::Losses;

/// A hold's number begins with its worker's, and counts up from there.
pub(crate) const WORKER_SHIFT: u32 = 40;

/// Everything that happened, and what must not have happened in it.
#[derive(Debug, Default)]
pub(crate) struct History {
    holds: HashMap<u64, Hold>,
    /// How many holds of each kind there were.
    pub(crate) granted: BTreeMap<&'static str, u64>,
    /// How many of the permits had a slot.
    pub(crate) slotted: u64,
    pub(crate) busy: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) excuses: Excuses,
    pub(crate) late: Vec<u64>,
    /// How often a guard and its server were compared, and what was wrong then.
    pub(crate) compared: u64,
    excesses: Vec<Excess>,
    pub(crate) shut_down: u64,
    pub(crate) drained: u64,
    pub(crate) crowded: u64,
    pub(crate) jobs: Jobs,
    pub(crate) forces: Forces,
    /// How often the state of locks was read.
    pub(crate) looked: u64,
    /// How often leases were used again, guards adopted, leases extended, and writers turned into readers.
    pub(crate) again: u64,
    pub(crate) adopted: u64,
    pub(crate) extended: u64,
    pub(crate) downgraded: u64,
    pub(crate) fenced: BTreeMap<u64, u64>,
    pub(crate) plain: BTreeMap<u64, u64>,
}

/// What a guard believed in beyond what the server said.
#[derive(Debug)]
struct Excess {
    hold: u64,
    micros: u64,
    at: u64,
}

/// The violations that were found, and how many more are explained by a loss of data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<String>,
    pub(crate) explained: u64,
}

#[derive(Debug)]
struct Hold {
    number: u64,
    kind: Kind,
    keys: Vec<u64>,
    fence: Option<u64>,
    slot: Option<u32>,
    start: u64,
    /// The last time it was seen valid. A worker that was killed never says: its start counts.
    end: u64,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, number) = (self.number >> WORKER_SHIFT, self.number % (1 << WORKER_SHIFT));
        write!(f, "{} hold {number} of worker {worker}", self.kind.name())?;
        self.slot.map_or(Ok(()), |slot| write!(f, " with slot {slot}"))?;
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
                let in_the_way =
                    |hold: &&Self| full || self.slot.is_some() && hold.slot == self.slot;
                furthest(&mut others.into_iter().chain(permits.into_iter().filter(in_the_way)))
            }
        }
    }
}

impl History {
    pub(crate) fn add(&mut self, event: Event) {
        match event {
            Event::Granted { hold, kind, number, at, keys } => {
                *self.granted.entry(kind.name()).or_default() += 1;
                let (fence, slot) = (number.fence(), number.slot());
                self.slotted += u64::from(slot.is_some());
                let noted = Hold { number: hold, kind, keys, fence, slot, start: at, end: at };
                self.holds.insert(hold, noted);
            }
            Event::Ended { hold, at } => self.was_valid(hold, at),
            Event::Adopted { hold, at } => {
                self.adopted += 1;
                self.was_valid(hold, at);
            }
            Event::Again => self.again += 1,
            Event::Extended => self.extended += 1,
            Event::Downgraded => self.downgraded += 1,
            Event::Fenced { key } => *self.fenced.entry(key).or_default() += 1,
            Event::Plain { key } => *self.plain.entry(key).or_default() += 1,
            Event::Busy => self.busy += 1,
            Event::Failed => self.failed += 1,
            Event::Lost { hold, lease, at } => {
                self.lost += 1;
                self.excuses.lost(hold >> WORKER_SHIFT, lease, at);
            }
            Event::Stood { worker, from, until } => {
                self.excuses.add(Some(worker), "it stood still".to_owned(), from..until);
            }
            Event::Late { took } => self.late.push(took),
            Event::Compared { hold, excess, at } => self.compared(hold, excess, at),
            Event::Forcing { key, from } => self.forces.begin(key, from),
            Event::Forced { key, from, until } => self.forces.end(key, from, until),
            Event::Looked => self.looked += 1,
            Event::ShutDown => self.shut_down += 1,
            Event::Drained => self.drained += 1,
            Event::Crowded => self.crowded += 1,
            Event::Done { slot, from, at } => self.jobs.done(slot, from, at),
            Event::FoundDone => self.jobs.found += 1,
        }
    }

    /// Also while it was under way from one guard to the next, no other worker may have had the lock.
    fn was_valid(&mut self, hold: u64, at: u64) {
        if let Some(hold) = self.holds.get_mut(&hold) {
            hold.end = hold.end.max(at);
        }
    }

    fn compared(&mut self, hold: u64, micros: u64, at: u64) {
        self.compared += 1;
        if micros > 0 {
            self.excesses.push(Excess { hold, micros, at });
        }
    }

    /// Guards that believed in more than the server said, at a time at which it was clear who has the
    /// lock.
    pub(crate) fn excesses<'a>(&'a self, losses: &'a Losses) -> impl Iterator<Item = String> + 'a {
        let wrong = self.excesses.iter().filter(|excess| !losses.is_disputed(excess.at));
        wrong.map(|Excess { hold, micros, .. }| {
            let hold = self.holds.get(hold).map_or_else(|| hold.to_string(), Hold::to_string);
            format!("{hold} believed in {micros} us too many")
        })
    }

    /// How many holds there were, of all kinds.
    pub(crate) fn total(&self) -> u64 {
        self.granted.values().sum()
    }

    /// How many holds the worker with this number has had.
    pub(crate) fn granted_to(&self, worker: u64) -> usize {
        self.holds.keys().filter(|hold| *hold >> WORKER_SHIFT == worker).count()
    }

    /// The longest time in which no worker was granted a key, of those that may be lost or of the others,
    /// and which key that was. Only of keys that a worker wants at any time.
    pub(crate) fn longest_gap(&self, volatile: bool) -> Option<(Duration, u64)> {
        let keys = self.by_key().into_iter();
        let is_seldom = |key| is_home(key) || is_forced(key);
        let keys = keys.filter(|(key, _)| is_volatile(*key) == volatile && !is_seldom(*key));
        let gaps = keys.filter_map(|(key, holds)| {
            let gap = holds.windows(2).map(|pair| pair[1].start - pair[0].start).max()?;
            Some((Duration::from_nanos(gap), key))
        });
        gaps.max()
    }

    /// Holds of one key that were valid at the same time although their kinds exclude each other, and
    /// holds whose fences do not rise in the order of holding; but for those that a loss of data
    /// explains. A hold of several keys is one of each.
    pub(crate) fn findings(&self, losses: &Losses) -> Findings {
        let mut findings = Findings::default();
        for (key, holds) in self.by_key() {
            overlaps(key, &holds, (losses, &self.forces), &mut findings);
            late_fences(key, &holds, (losses, &self.forces), &mut findings);
        }
        findings
    }

    /// The holds of each key in the order of their beginning.
    fn by_key(&self) -> BTreeMap<u64, Vec<&Hold>> {
        let mut by_key: BTreeMap<u64, Vec<&Hold>> = BTreeMap::new();
        for hold in self.holds.values() {
            for key in &hold.keys {
                by_key.entry(*key).or_default().push(hold);
            }
        }
        by_key.values_mut().for_each(|holds| holds.sort_unstable_by_key(|hold| hold.start));
        by_key
    }
}

/// Finds what must not overlap among holds of one key, in the order of their beginning.
fn overlaps(
    key: u64,
    holds: &[&Hold],
    (losses, forces): (&Losses, &Forces),
    findings: &mut Findings,
) {
    let mut valid: Vec<&Hold> = Vec::new();
    for hold in holds {
        // Of holds that overlap, one begins while the others are valid.
        valid.retain(|before| before.end > hold.start);
        let clash = hold.clash(&valid).filter(|_| !forces.are_believed_in(key, hold.start));
        if let Some(before) = clash {
            // Fences must tell whose effect is the later one.
            let is_fenced = before.fence.is_none() || before.fence != hold.fence;
            if is_fenced && losses.explain(key, before.start, hold.start) {
                findings.explained += 1;
            } else {
                findings.violations.push(overlap(key, before, hold, valid.len()));
            }
        }
        valid.push(hold);
    }
}

fn overlap(key: u64, before: &Hold, hold: &Hold, valid: usize) -> String {
    let micros = (before.end - hold.start) / 1000;
    format!(
        "key {key}: {before} was valid until {micros} us after {hold} was granted, with {valid} valid \
         at that time"
    )
}

/// Finds the fences that do not rise among holds of one key, in the order of their beginning.
fn late_fences(
    key: u64,
    holds: &[&Hold],
    (losses, forces): (&Losses, &Forces),
    findings: &mut Findings,
) {
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
            // Of two servers that both thought they had the key, the one's answer took longer.
            let is_lost = !losses.always && losses.explain(key, highest.start, hold.start);
            // Calls of a process that does not know yet that its lease was ended have fences of that lease.
            let is_explained = is_lost || forces.are_believed_in(key, hold.start);
            if highest.fence != hold.fence && is_explained {
                findings.explained += 1;
            } else {
                findings
                    .violations
                    .push(format!("key {key}: {hold} was granted after {highest} had ended"));
            }
        }
        ended.push(hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::LONGEST_TTL;
    use crate::soak::clock::nanos;
    use crate::soak::event::Number;

    fn mutex(hold: u64, fence: u64, at: u64) -> Event {
        Event::Granted { hold, kind: Kind::Mutex, number: Number::Fence(fence), at, keys: vec![1] }
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
            let number = if kind.is_fenced() { Number::Fence(hold + 1) } else { Number::None };
            history.add(Event::Granted { hold, kind, number, at: start, keys: keys.to_vec() });
            history.add(Event::Ended { hold, at: end });
        }
        history
    }

    fn all(history: &History) -> usize {
        history.findings(&Losses::default()).violations.len()
    }

    #[test]
    fn holds_one_after_the_other_are_fine_in_whatever_order_they_are_listed() {
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
        let losses = Losses::new(true);
        let explained = history(&[(1, 10, 21), (2, 20, 30)]).findings(&losses);
        assert_eq!(explained, Findings { violations: vec![], explained: 1 });
        // Not one that fences don't tell.
        let findings = history(&[(1, 10, 21), (1, 20, 30)]).findings(&losses);
        assert_eq!((findings.violations.len(), findings.explained), (1, 0));
    }

    #[test]
    fn a_hold_that_is_adopted_goes_on() {
        let mut history = history(&[(1, 10, 20), (2, 30, 40)]);
        assert_eq!((all(&history), history.adopted), (0, 0));
        history.add(Event::Adopted { hold: 0, at: 35 });
        assert_eq!((all(&history), history.adopted), (1, 1));
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
        // Behind a reader that is in no other's way.
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
    fn one_slot_of_two_permits_is_seen() {
        for (slots, found) in [([0, 0], 1), ([0, 1], 0)] {
            let mut history = History::default();
            for (hold, slot, at) in [(1, slots[0], 10), (2, slots[1], 20)] {
                let (kind, number) = (Kind::Permit(2), Number::Slot(slot));
                history.add(Event::Granted { hold, kind, number, at, keys: vec![9] });
                history.add(Event::Ended { hold, at: at + 20 });
            }
            assert_eq!(all(&history), found, "{slots:?}");
        }
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
            number: Number::Fence(fence),
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
        assert_eq!(kinds(&legal).findings(&Losses::default()), Findings::default());
        assert_eq!(kinds(&legal).granted["permit"], 4);
    }

    #[test]
    fn a_hold_that_was_ended_by_force_is_believed_in_for_a_lease_and_no_longer() {
        let force = |history: &mut History, from| {
            history.add(Event::Forcing { key: 1, from });
            history.add(Event::Forced { key: 1, from, until: Some(from + 5) });
        };
        let lease = nanos(LONGEST_TTL);
        let forced = |end, from| {
            let mut history = history(&[(2, 10, end), (1, 100, 120)]);
            force(&mut history, from);
            history
        };
        assert_eq!(forced(110, 50).findings(&Losses::default()).violations.len(), 0);
        assert_eq!(all(&forced(110, 101)), 1, "it was ended later");
        let mut late = forced(lease + 200, 50);
        late.add(mutex(7, 3, lease + 56));
        assert_eq!(all(&late), 1, "its lease must be over");
        // The fence of a lease that its process believes in.
        let mut fences = history(&[(2, 10, 20), (1, 30, 40)]);
        assert_eq!(all(&fences), 1);
        force(&mut fences, 5);
        assert_eq!((all(&fences), fences.findings(&Losses::default()).explained), (0, 1));
    }

    #[test]
    fn a_belief_beyond_the_servers_word_is_seen() {
        let mut history = history(&[(1, 10, 20)]);
        let compared = |excess, at| Event::Compared { hold: 0, excess, at };
        history.add(compared(0, 11));
        let mut losses = Losses::default();
        assert_eq!((history.compared, history.excesses(&losses).count()), (1, 0));
        history.add(compared(300, 12));
        let found: Vec<_> = history.excesses(&losses).collect();
        assert_eq!(found, ["mutex hold 0 of worker 0 with fence 1 believed in 300 us too many"]);
        losses.add(12, 13);
        assert_eq!(history.excesses(&losses).count(), 0);
    }

    #[test]
    fn the_longest_gap_is_that_between_two_grants_of_one_key() {
        let history = history(&[(1, 10, 20), (2, 40, 50), (3, 60, 61)]);
        assert_eq!(history.longest_gap(true), Some((Duration::from_nanos(30), 1)));
        assert_eq!(history.longest_gap(false), None, "there was no hold of a durable key");
    }
}
