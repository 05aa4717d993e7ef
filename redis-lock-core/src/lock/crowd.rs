//! Several waiters for one lock in this process, in the order of arrival.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::Waiter;
use crate::domain::clock::Moment;

/// Several waiters of one lock. Joining, leaving and finding the next end take about the same time
/// however many there are.
#[derive(Debug)]
pub(crate) struct Crowd<W> {
    /// Ordered by id, which is the order of arrival. A waiter that has left leaves a gap.
    queue: VecDeque<(u64, Option<Waiter<W>>)>,
    count: usize,
    /// When waiters have to get an answer.
    ends: BTreeSet<(Moment, u64)>,
    /// The callers that don't wait, in the order of arrival. Some may have left.
    no_wait: VecDeque<u64>,
    no_wait_count: usize,
    /// The waiters whose wait has ended and who have had no answer yet. Some may have left.
    late: Vec<u64>,
    /// The shortest time limit for an outage among the waiters.
    outage: Duration,
}

impl<W> Default for Crowd<W> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            count: 0,
            ends: BTreeSet::new(),
            no_wait: VecDeque::new(),
            no_wait_count: 0,
            late: Vec::new(),
            outage: Duration::MAX,
        }
    }
}

impl<W> Crowd<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn join(&mut self, waiter: Waiter<W>) {
        let until = waiter.until();
        if until != Moment::NEVER {
            self.ends.insert((until, waiter.id));
        }
        if !waiter.can_wait() {
            self.no_wait.push_back(waiter.id);
            self.no_wait_count += 1;
        }
        self.outage = self.outage.min(waiter.demand.terms.outage);
        self.count += 1;
        self.queue.push_back((waiter.id, Some(waiter)));
    }

    /// Takes out a waiter that has given up.
    pub(super) fn leave(&mut self, id: u64) -> Option<Waiter<W>> {
        let index = self.queue.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let waiter = self.queue.get_mut(index)?.1.take()?;
        self.left(&waiter);
        Some(waiter)
    }

    pub(super) fn first(&self) -> Option<&Waiter<W>> {
        self.queue.front()?.1.as_ref()
    }

    pub(super) fn pop(&mut self) -> Option<Waiter<W>> {
        let waiter = self.queue.front_mut()?.1.take()?;
        self.left(&waiter);
        Some(waiter)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter<W>> {
        self.queue.iter().filter_map(|(_, waiter)| waiter.as_ref())
    }

    pub(super) fn any_can_wait(&self) -> bool {
        self.count > self.no_wait_count
    }

    pub(super) fn any_no_wait(&self) -> bool {
        self.no_wait_count > 0
    }

    /// Takes out the next caller that does not wait, if it arrived before `moment`.
    pub(super) fn pop_no_wait(&mut self, moment: Moment) -> Option<Waiter<W>> {
        while let Some(id) = self.no_wait.front().copied() {
            let Some(waiter) = self.get(id) else {
                self.no_wait.pop_front();
                continue;
            };
            if waiter.asked > moment {
                return None;
            }
            self.no_wait.pop_front();
            return self.leave(id);
        }
        None
    }

    /// The next waiter whose wait has ended at `now`. It is not taken out; see
    /// [`put_off`](Self::put_off) and [`leave`](Self::leave).
    pub(super) fn overdue(&mut self, now: Moment) -> Option<&Waiter<W>> {
        while let Some((at, id)) = self.ends.first().copied() {
            if at > now {
                return None;
            }
            if self.get(id).is_some() {
                return self.get(id);
            }
            self.ends.pop_first();
        }
        None
    }

    /// The waiter will be refused by the first answer, or at `until`.
    pub(super) fn put_off(&mut self, id: u64, until: Moment) {
        self.ends.pop_first();
        self.ends.insert((until, id));
        self.late.push(id);
    }

    /// Takes out the waiters that were put off, if they arrived no later than `moment`.
    pub(super) fn take_late(&mut self, moment: Moment) -> Vec<Waiter<W>> {
        let (mut stay, mut found) = (Vec::new(), Vec::new());
        for id in std::mem::take(&mut self.late) {
            match self.get(id) {
                Some(waiter) if waiter.asked <= moment => found.extend(self.leave(id)),
                Some(_) => stay.push(id),
                None => {}
            }
        }
        self.late = stay;
        found
    }

    /// Whether a waiter was put off and has had no answer.
    pub(super) fn any_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Takes out the waiters whose time limit for an outage has passed. The last useful answer came
    /// at `useful`.
    pub(super) fn over_outage(&mut self, useful: Moment, now: Moment) -> Vec<Waiter<W>> {
        let ended = |waiter: &&Waiter<W>| waiter.outage_end(useful) <= now;
        let ids: Vec<_> = self.iter().filter(ended).map(|waiter| waiter.id).collect();
        let rest = self.iter().filter(|waiter| !ended(waiter));
        self.outage = rest.map(|waiter| waiter.demand.terms.outage).min().unwrap_or(Duration::MAX);
        ids.into_iter().filter_map(|id| self.leave(id)).collect()
    }

    /// The first time at which a time limit for an outage may pass.
    pub(super) fn outage_due(&self, useful: Moment) -> Moment {
        let oldest = self.first().map_or(useful, |first| first.asked.max(useful));
        oldest.after(self.outage)
    }

    /// When the next wait ends.
    pub(super) fn due(&self) -> Moment {
        self.ends.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    pub(super) fn into_all(self) -> Vec<Waiter<W>> {
        self.queue.into_iter().filter_map(|(_, waiter)| waiter).collect()
    }

    fn get(&self, id: u64) -> Option<&Waiter<W>> {
        let index = self.queue.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.queue.get(index)?.1.as_ref()
    }

    fn left(&mut self, waiter: &Waiter<W>) {
        self.count -= 1;
        self.no_wait_count -= usize::from(!waiter.can_wait());
        let until = waiter.until();
        if until != Moment::NEVER && !self.ends.remove(&(until, waiter.id)) {
            self.ends.remove(&(waiter.answer_by(), waiter.id));
        }
        while matches!(self.queue.front(), Some((_, None))) {
            self.queue.pop_front();
        }
        // Gaps in the middle are removed when they make up most of the queue.
        if self.queue.len() > 32 && self.queue.len() > self.count * 2 {
            self.queue.retain(|(_, waiter)| waiter.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::demand::tests::demand;

    fn crowd(count: u64) -> Crowd<()> {
        let mut crowd = Crowd::default();
        let demand = Arc::new(demand("k"));
        for id in 0..count {
            let demand = Arc::clone(&demand);
            crowd.join(Waiter { id, handle: (), demand, asked: Moment::START });
        }
        crowd
    }

    #[test]
    fn gaps_in_the_queue_are_removed_when_they_make_up_most_of_it() {
        let mut many = crowd(100);
        (1..=50).for_each(|id| assert!(many.leave(id).is_some()));
        assert_eq!(many.queue.len(), 100);
        assert!(many.leave(51).is_some());
        assert_eq!((many.queue.len(), many.iter().count()), (49, 49));
        let mut few = crowd(32);
        (1..=30).for_each(|id| assert!(few.leave(id).is_some()));
        assert_eq!((few.queue.len(), few.iter().count()), (32, 2), "too few to care");
    }
}
