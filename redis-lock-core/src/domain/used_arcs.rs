//! Shared values whose memory is used again when nobody has them any more.

use std::collections::VecDeque;
use std::sync::Arc;

/// How many are kept. A thread seldom has more tasks that it has woken and not yet run.
const MOST: usize = 32;

/// How many are looked at each time. Mostly the first one is free, since it was kept first.
const LOOKS: usize = 2;

/// Shared values that have served their purpose. Others may still have them, so each is looked at
/// before its memory is used again: only who has the sole reference can change what it refers to. So
/// whoever still has an old value never sees a new one in its place.
///
/// What is kept is dropped later, and wherever the next one is made. So it must not run the user's
/// code then, and nobody may wait for its end.
#[derive(Debug)]
pub(crate) struct UsedArcs<T>(VecDeque<Arc<T>>);

impl<T> Default for UsedArcs<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> UsedArcs<T> {
    /// Keeps one for its memory. When there are too many, the oldest goes.
    pub(crate) fn keep(&mut self, used: Arc<T>) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(used);
    }

    /// Shares a value, in memory that nobody uses any more if there is some. All of what was there is
    /// replaced.
    pub(crate) fn share(&mut self, value: T) -> Arc<T> {
        for _ in 0..LOOKS {
            let Some(mut used) = self.0.pop_front() else { break };
            if let Some(free) = Arc::get_mut(&mut used) {
                *free = value;
                return used;
            }
            // Behind the others, so that one which stays in use does not hide them.
            self.0.push_back(used);
        }
        Arc::new(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_any_more_is_used_again_and_is_all_new() {
        let mut used = UsedArcs::default();
        let first = used.share(vec![1]);
        let at = Arc::as_ptr(&first);
        used.keep(first);
        let second = used.share(vec![2]);
        assert_eq!((Arc::as_ptr(&second), &*second), (at, &vec![2]));
        assert!(!Arc::ptr_eq(&second, &used.share(vec![3])), "it is in use");
    }

    #[test]
    fn what_somebody_has_keeps_its_value() {
        let mut used = UsedArcs::default();
        let (old, seen) = (used.share(1), used.share(2));
        let weak = Arc::downgrade(&seen);
        used.keep(Arc::clone(&old));
        used.keep(seen);
        for new in 10..20 {
            assert!(!Arc::ptr_eq(&old, &used.share(new)));
        }
        assert_eq!((*old, weak.upgrade().as_deref()), (1, Some(&2)));
        drop(weak);
        let at = Arc::as_ptr(&old);
        drop(old);
        let new = [used.share(20), used.share(21)];
        assert!(new.iter().any(|new| Arc::as_ptr(new) == at), "it is free now");
    }

    #[test]
    fn one_that_stays_in_use_does_not_hide_others() {
        let mut used = UsedArcs::default();
        let stays: Vec<_> = (0..3).map(|number| used.share(number)).collect();
        stays.iter().for_each(|one| used.keep(Arc::clone(one)));
        used.keep(Arc::new(9));
        for _ in 0..4 {
            let new = used.share(7);
            assert!(stays.iter().all(|one| !Arc::ptr_eq(one, &new)));
        }
        assert_eq!(used.0.len(), stays.len(), "the free one is in use, or was");
    }

    #[test]
    fn no_more_are_kept_than_a_few() {
        let mut used = UsedArcs::default();
        let all: Vec<_> = (0..MOST + 5).map(Arc::new).collect();
        all.iter().for_each(|one| used.keep(Arc::clone(one)));
        assert_eq!(all.iter().filter(|one| Arc::strong_count(one) > 1).count(), MOST);
    }
}
