//! Locks that were handed over a moment ago while others waited behind the new holder.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::clock::Moment;

/// For how long such a lock is taken to be busy. Whoever asks for it meanwhile joins the queue without
/// trying to take it first.
const BUSY: Duration = Duration::from_millis(10);

/// The most locks that are remembered.
const MOST: usize = 1_024;

#[derive(Default)]
pub(super) struct HandOvers(Mutex<HashMap<Box<str>, Moment>>);

impl HandOvers {
    pub(super) fn note(&self, key: &str, now: Moment) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() >= MOST {
            ends.retain(|_, end| *end > now);
        }
        if ends.len() < MOST {
            ends.insert(key.into(), now.after(BUSY));
        }
    }

    /// Whether this lock was handed over a moment ago. The answer is `true` once.
    pub(super) fn take(&self, key: &str, now: Moment) -> bool {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ends.remove(key).is_some_and(|end| now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_to_be_busy_once_and_not_for_long() {
        let (handed, now) = (HandOvers::default(), Moment::at_millis(100));
        handed.note("a", now);
        handed.note("b", now);
        assert!(handed.take("a", Moment::at_millis(109)));
        assert!(!handed.take("a", Moment::at_millis(109)), "the next one tries");
        assert!(!handed.take("b", Moment::at_millis(110)));
        assert!(!handed.take("c", now));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let handed = HandOvers::default();
        (0..2 * MOST).for_each(|key| handed.note(&key.to_string(), Moment::at_millis(1)));
        assert_eq!(handed.0.lock().unwrap().len(), MOST);
        handed.note("late", Moment::at_millis(20));
        assert_eq!(handed.0.lock().unwrap().len(), 1);
    }
}
