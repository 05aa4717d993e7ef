//! What a history shows. Exclusion is judged twice: by the overlap of intervals, and by the
//! linearizability tester of `stateright`, for which the lock is a mutex.

use std::time::Duration;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use crate::board::History;
use crate::event::Event;
use crate::figures::Figures;
use crate::worker::Ended;

/// One hold, as its worker saw it.
#[derive(Clone, Copy, Debug)]
struct Hold {
    worker: usize,
    call: u64,
    got: u64,
    /// When the body was over.
    end: Option<u64>,
    ended: Option<(u64, Ended)>,
}

impl Hold {
    /// Whether its caller was told that all is well.
    fn is_ok(&self) -> bool {
        matches!(self.ended, Some((_, Ended::Ok)))
    }
}

pub(crate) fn judge(history: History, keys: Vec<(String, i64)>) -> Figures {
    let holds = holds(&history.events);
    let clash = |one: &Hold, other: &Hold| {
        // Holds are in the order of their beginnings. What was killed at the end has no end.
        one.worker != other.worker && one.end.is_some_and(|end| other.got < end)
    };
    let (mut overlaps, mut untold) = (0, 0);
    for (index, one) in holds.iter().enumerate() {
        let mut others = holds[index + 1..].iter().filter(|other| clash(one, other)).peekable();
        overlaps += u64::from(others.peek().is_some());
        untold += u64::from(one.is_ok() && others.any(Hold::is_ok));
    }
    let count = |wanted: fn(&Event) -> bool| {
        history.events.iter().filter(|(_, event)| wanted(event)).count() as u64
    };
    let told = holds.iter().filter(|hold| matches!(hold.ended, Some((_, Ended::Lost))));
    Figures {
        holds: holds.len() as u64,
        told_lost: told.count() as u64,
        overlaps,
        untold,
        linearizable: is_linearizable(&holds),
        lost_plain: history.store.lost_plain(),
        lost_fenced: history.store.lost_fenced(),
        hung: history.hung,
        crashed: history.crashed,
        failed: count(|event| matches!(event, Event::Failed { .. })),
        busy: count(|event| matches!(event, Event::Busy { .. })),
        left: keys,
        longest_wait: holds.iter().map(|hold| Duration::from_nanos(hold.got - hold.call)).max(),
        next: next_holders(&history, &holds),
    }
}

/// All holds, in the order in which they began.
fn holds(events: &[(usize, Event)]) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    let mut calls = std::collections::BTreeMap::new();
    for (worker, event) in events {
        let last = holds.iter_mut().rev().find(|hold| hold.worker == *worker);
        match (event, last) {
            (Event::Call { at }, _) => {
                calls.insert(*worker, *at);
            }
            (Event::Got { at, .. }, _) => {
                let call = calls.get(worker).copied().unwrap_or(*at);
                holds.push(Hold { worker: *worker, call, got: *at, end: None, ended: None });
            }
            (Event::End { at }, Some(hold)) => hold.end = Some(*at),
            (Event::Ended { at, how }, Some(hold)) => hold.ended = Some((*at, *how)),
            _ => {}
        }
    }
    holds.sort_by_key(|hold| hold.got);
    holds
}

/// The time from each fault to the next hold; where there was none, from each release.
fn next_holders(history: &History, holds: &[Hold]) -> Vec<Duration> {
    let ends: Vec<u64> = match history.faults.is_empty() {
        true => holds.iter().filter_map(|hold| hold.end).collect(),
        false => history.faults.clone(),
    };
    let next = |from: &u64| {
        let next = holds.iter().find(|hold| hold.got > *from)?;
        Some(Duration::from_nanos(next.got - from))
    };
    ends.iter().filter_map(next).collect()
}

/// A lock as it should be.
#[derive(Clone, Debug, Default)]
struct Mutex {
    is_locked: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Lock,
    Unlock,
}

impl SequentialSpec for Mutex {
    type Op = Step;
    /// Whether the step was possible.
    type Ret = bool;

    fn invoke(&mut self, step: &Step) -> bool {
        let is_possible = self.is_locked == (*step == Step::Unlock);
        self.is_locked = *step == Step::Lock;
        is_possible
    }
}

/// Whether the holds of which their callers were told that all is well fit into one order.
fn is_linearizable(holds: &[Hold]) -> bool {
    let mut moments = Vec::new();
    for hold in holds.iter().filter(|hold| hold.is_ok()) {
        let (Some(end), Some((ended, _))) = (hold.end, hold.ended) else { continue };
        moments.push((hold.call, hold.worker, Some(Step::Lock)));
        moments.push((hold.got, hold.worker, None));
        moments.push((end, hold.worker, Some(Step::Unlock)));
        moments.push((ended, hold.worker, None));
    }
    moments.sort_by_key(|(at, ..)| *at);
    let mut tester = LinearizabilityTester::new(Mutex::default());
    for (_, worker, step) in moments {
        let noted = match step {
            Some(step) => tester.on_invoke(worker, step).is_ok(),
            None => tester.on_return(worker, true).is_ok(),
        };
        if !noted {
            return false;
        }
    }
    // It calls itself once for each step.
    let thread = std::thread::Builder::new().stack_size(1 << 30);
    let judged = thread.spawn(move || tester.is_consistent());
    judged.is_ok_and(|thread| thread.join().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(worker: usize, call: u64, got: u64, end: u64, how: Ended) -> Hold {
        Hold { worker, call, got, end: Some(end), ended: Some((end + 1, how)) }
    }

    #[test]
    fn two_holds_at_once_are_no_mutex_unless_one_was_told_to_be_lost() {
        let first = hold(0, 1, 2, 10, Ended::Ok);
        assert!(is_linearizable(&[first, hold(1, 3, 12, 20, Ended::Ok)]));
        assert!(!is_linearizable(&[first, hold(1, 3, 5, 20, Ended::Ok)]));
        assert!(is_linearizable(&[first, hold(1, 3, 5, 20, Ended::Lost)]));
    }

    #[test]
    fn a_hold_may_begin_while_the_release_before_it_has_not_returned() {
        let mut first = hold(0, 1, 2, 10, Ended::Ok);
        first.ended = Some((30, Ended::Ok));
        assert!(is_linearizable(&[first, hold(1, 3, 12, 20, Ended::Ok)]));
    }

    #[test]
    fn holds_are_read_from_lines_and_the_next_holder_is_found() {
        let lines = "0 call 1\n0 got 2 -\n1 call 3\n0 end 10\n0 ended 11 ok\n1 got 15 -\n1 end 20\n\
                     1 ended 21 lost";
        let events = lines.lines().map(|line| {
            let (worker, line) = line.split_once(' ').unwrap();
            (worker.parse().unwrap(), Event::read(line).unwrap())
        });
        let history = History {
            events: events.collect(),
            faults: Vec::new(),
            store: crate::store::Store::default(),
            hung: 0,
            crashed: 0,
        };
        let figures = judge(history, Vec::new());
        assert_eq!((figures.holds, figures.told_lost, figures.overlaps), (2, 1, 0));
        assert_eq!(figures.next, [Duration::from_nanos(5)]);
        assert!(figures.linearizable);
    }
}
