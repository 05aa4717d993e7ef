//! The waiters of this process for one lock, in the order in which they queued.

use std::collections::BTreeSet;

use crate::lock::Standing;

/// So many waiters look often: more than a release lets in at once, so that whoever is let in next is
/// among them even if the message is lost. Few in tests, so that some waiters are behind.
const FRONT: usize = if cfg!(test) { 2 } else { 32 };

/// The waiters of this process for a lock, by the numbers of their machines. Each of them is in the
/// server's queue.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    front: BTreeSet<u64>,
    behind: BTreeSet<u64>,
}

impl WaitingLine {
    pub(super) fn join(&mut self, number: u64) -> Standing {
        if self.front.len() < FRONT {
            self.front.insert(number);
            return Standing::Front;
        }
        self.behind.insert(number);
        Standing::Behind
    }

    /// Takes out a waiter. Returns the one that comes to the front for it.
    pub(super) fn leave(&mut self, number: u64) -> Option<u64> {
        if !self.front.remove(&number) {
            self.behind.remove(&number);
            return None;
        }
        let next = self.behind.pop_first()?;
        self.front.insert(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_those_behind_comes_to_the_front_when_one_of_these_leaves() {
        let mut line = WaitingLine::default();
        assert_eq!([1, 2].map(|number| line.join(number)), [Standing::Front; 2]);
        assert_eq!([3, 4, 5].map(|number| line.join(number)), [Standing::Behind; 3]);
        assert_eq!(line.leave(3), None, "it was behind itself");
        assert_eq!(line.leave(7), None, "it was never there");
        assert_eq!([line.leave(1), line.leave(4), line.leave(2)], [Some(4), Some(5), None]);
        assert_eq!(line.join(6), Standing::Front);
        assert_eq!([5, 6].map(|number| line.leave(number)), [None; 2]);
        assert!(line.front.is_empty() && line.behind.is_empty());
    }
}
