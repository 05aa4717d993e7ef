//! The waiters of this process for one lock, in the order in which they queued.

use std::collections::{BTreeMap, BTreeSet};

/// So many waiters look often: more than a release lets in at once, so that whoever is let in next is
/// among them even if the message is lost. Few in tests, so that some waiters are behind.
const FRONT: usize = if cfg!(test) { 2 } else { 32 };

/// Where a waiter stands among those of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    Front,
    /// The others are let in before it. It joined as the one with this number.
    Behind(u64),
}

/// The waiters of this process for a lock, by the numbers of their machines. Each of them is in the
/// server's queue.
///
/// The numbers of machines say who asked first. Where that was refused at first, each queued when it
/// tried again, so the order of the queue is that in which the answers said so.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    front: BTreeSet<u64>,
    /// In the order in which they joined.
    behind: BTreeMap<u64, u64>,
    /// How many have joined behind.
    joined: u64,
}

impl WaitingLine {
    pub(super) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.behind.is_empty()
    }

    pub(super) fn join(&mut self, number: u64) -> Spot {
        if self.front.len() < FRONT {
            self.front.insert(number);
            return Spot::Front;
        }
        self.joined += 1;
        self.behind.insert(self.joined, number);
        Spot::Behind(self.joined)
    }

    /// Takes out a waiter. Returns the one that comes to the front for it.
    pub(super) fn leave(&mut self, number: u64, spot: Spot) -> Option<u64> {
        if let Spot::Behind(joined) = spot {
            self.behind.remove(&joined);
            return None;
        }
        self.front.remove(&number);
        let (_, next) = self.behind.pop_first()?;
        self.front.insert(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::Spot::{Behind, Front};
    use super::*;

    #[test]
    fn the_first_of_those_behind_comes_to_the_front_when_one_of_these_leaves() {
        let mut line = WaitingLine::default();
        assert_eq!([1, 2].map(|number| line.join(number)), [Front; 2]);
        assert_eq!([3, 4, 5].map(|number| line.join(number)), [Behind(1), Behind(2), Behind(3)]);
        assert_eq!(line.leave(3, Behind(1)), None, "it was behind itself");
        assert_eq!([1, 4, 2].map(|number| line.leave(number, Front)), [Some(4), Some(5), None]);
        assert_eq!(line.join(6), Front);
        assert_eq!([5, 6].map(|number| line.leave(number, Front)), [None; 2]);
        assert!(line.front.is_empty() && line.behind.is_empty());
    }

    #[test]
    fn whoever_has_queued_later_comes_later_though_it_asked_before() {
        let mut line = WaitingLine::default();
        assert_eq!([7, 9].map(|number| line.join(number)), [Front; 2]);
        assert_eq!([8, 1, 2].map(|number| line.join(number)), [Behind(1), Behind(2), Behind(3)]);
        assert_eq!(line.leave(1, Behind(2)), None);
        assert_eq!(line.join(1), Behind(4), "it has queued again");
        assert_eq!([9, 7, 8].map(|number| line.leave(number, Front)), [8, 2, 1].map(Some));
    }
}
