//! Limits how often this manager tells others that a lock is in use here. Anybody may send the
//! questions, for any number of locks; whoever gets no answer looks by itself.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::clock::Moment;

/// The most answers in a second.
const MOST: u32 = 1_000;

#[derive(Debug, Default)]
pub(super) struct InUseAnswers(Mutex<Option<Second>>);

/// The second in which answers are counted, and how many there were.
#[derive(Clone, Copy, Debug)]
struct Second {
    ends: Moment,
    count: u32,
}

impl InUseAnswers {
    /// Whether to answer now. Counts the answer.
    pub(super) fn may_answer(&self, now: Moment) -> bool {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Second { ends: now.after(Duration::from_secs(1)), count: 0 };
        let present = second.filter(|it| now < it.ends).unwrap_or(next);
        let may = present.count < MOST;
        *second = Some(Second { count: present.count + u32::from(may), ..present });
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lg18_a_thousand_answers_a_second_are_given_and_no_more() {
        let answers = InUseAnswers::default();
        let given =
            |at: u64| (0..3_000).filter(|_| answers.may_answer(Moment::at_millis(at))).count();
        assert_eq!(given(5_000), 1_000);
        assert_eq!(given(5_999), 0);
        assert_eq!(given(6_000), 1_000);
        assert_eq!(given(9_500), 1_000, "a second begins with its first answer");
        assert_eq!(given(10_400), 0);
    }
}
