//! The waiters for one lock in this process, in the order of arrival.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::fault::Fault;
use crate::store::Blocker;
use crate::{LockError, Wait};

/// How often to check whether a waiter's time limit for an outage has passed.
const OUTAGE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The waiters of one lock. Joining, leaving and finding the next end take about the same time
/// however many there are.
#[derive(Debug)]
pub(crate) struct Waiters<W> {
    /// Ordered by id, which is the order of arrival. A waiter that has left leaves a gap.
    queue: VecDeque<(u64, Option<WaitingCall<W>>)>,
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
    /// No waiter's time limit for an outage passes before this.
    outage_check: Moment,
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            count: 0,
            ends: BTreeSet::new(),
            no_wait: VecDeque::new(),
            no_wait_count: 0,
            late: Vec::new(),
            outage: Duration::MAX,
            outage_check: Moment::START,
        }
    }
}

impl<W> Waiters<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn join(&mut self, waiter: WaitingCall<W>) {
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

    /// How many of them can wait.
    pub(super) fn waiting(&self) -> usize {
        self.count.saturating_sub(self.no_wait_count)
    }

    /// Takes out a waiter that has given up.
    pub(super) fn leave(&mut self, id: u64) -> Option<WaitingCall<W>> {
        let index = self.queue.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let waiter = self.queue.get_mut(index)?.1.take()?;
        self.left(&waiter);
        Some(waiter)
    }

    pub(super) fn first(&self) -> Option<&WaitingCall<W>> {
        self.queue.front()?.1.as_ref()
    }

    pub(super) fn pop(&mut self) -> Option<WaitingCall<W>> {
        let waiter = self.queue.front_mut()?.1.take()?;
        self.left(&waiter);
        Some(waiter)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &WaitingCall<W>> {
        self.queue.iter().filter_map(|(_, waiter)| waiter.as_ref())
    }

    pub(super) fn any_can_wait(&self) -> bool {
        self.waiting() > 0
    }

    pub(super) fn any_no_wait(&self) -> bool {
        self.no_wait_count > 0
    }

    /// Whether a call that the next answer refuses has joined after this number.
    pub(super) fn is_answer_owed_since(&self, number: u64) -> bool {
        let no_wait = self.no_wait.iter().rev().take_while(|id| **id > number);
        // In the order in which their waits have ended.
        let late = self.late.iter().filter(|id| **id > number);
        no_wait.chain(late).any(|id| self.get(*id).is_some())
    }

    /// Takes out the next caller that does not wait, if it arrived before `moment`.
    pub(super) fn pop_no_wait(&mut self, moment: Moment) -> Option<WaitingCall<W>> {
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
    pub(super) fn overdue(&mut self, now: Moment) -> Option<&WaitingCall<W>> {
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

    /// The waiter, which was the next overdue one, will be refused by the first answer, or when it has
    /// to get one.
    pub(super) fn put_off(&mut self, id: u64, answer_by: Moment) {
        self.ends.pop_first();
        self.ends.insert((answer_by, id));
        self.late.push(id);
    }

    /// Takes out the waiters that were put off, if they arrived no later than `moment`.
    pub(super) fn take_late(&mut self, moment: Moment) -> Vec<WaitingCall<W>> {
        let (mut stay, mut found) = (Vec::new(), Vec::new());
        for id in mem::take(&mut self.late) {
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
    pub(super) fn over_outage(&mut self, useful: Moment, now: Moment) -> Vec<WaitingCall<W>> {
        if self.outage_due(useful) > now {
            return Vec::new();
        }
        self.outage_check = now.after(OUTAGE_CHECK_INTERVAL);
        let ended = self.take_all(|waiter| waiter.outage_end(useful) <= now);
        let outages = self.iter().map(|waiter| waiter.demand.terms.outage);
        self.outage = outages.min().unwrap_or(Duration::MAX);
        ended
    }

    /// Takes out those that fit.
    pub(super) fn take_all(
        &mut self,
        fits: impl Fn(&WaitingCall<W>) -> bool,
    ) -> Vec<WaitingCall<W>> {
        let ids: Vec<_> = self.iter().filter(|it| fits(it)).map(|waiter| waiter.id).collect();
        ids.into_iter().filter_map(|id| self.leave(id)).collect()
    }

    /// When to call [`over_outage`](Self::over_outage).
    pub(super) fn outage_due(&self, useful: Moment) -> Moment {
        let Some(first) = self.first() else { return Moment::NEVER };
        first.asked.max(useful).after(self.outage).max(self.outage_check)
    }

    /// When the next wait ends.
    pub(super) fn due(&self) -> Moment {
        self.ends.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    pub(super) fn drain(&mut self) -> Vec<WaitingCall<W>> {
        mem::take(self).queue.into_iter().filter_map(|(_, waiter)| waiter).collect()
    }

    pub(super) fn get(&self, id: u64) -> Option<&WaitingCall<W>> {
        let index = self.queue.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.queue.get(index)?.1.as_ref()
    }

    fn left(&mut self, waiter: &WaitingCall<W>) {
        self.count -= 1;
        if self.count == 0 {
            *self = Self { outage_check: self.outage_check, ..Self::default() };
            return;
        }
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

/// One waiter.
#[derive(Debug)]
pub(crate) struct WaitingCall<W> {
    pub(crate) id: u64,
    pub(crate) handle: W,
    pub(crate) demand: Arc<Demand>,
    pub(crate) asked: Moment,
}

impl<W> WaitingCall<W> {
    pub(crate) fn can_wait(&self) -> bool {
        self.demand.terms.wait != Wait::None
    }

    /// Whether it was given something else than a call with this fingerprint. Calls without one differ from none.
    pub(super) fn differs(&self, same: Option<u128>) -> bool {
        matches!((self.demand.terms.same, same), (Some(own), Some(other)) if own != other)
    }

    /// Whether it wants to know of a call that does the same, or has done it.
    pub(super) fn wants_news(&self) -> bool {
        self.demand.terms.once.is_some() || self.demand.terms.same.is_some()
    }

    /// When its wait ends. For a caller that does not wait, when its answer is due.
    pub(super) fn until(&self) -> Moment {
        match self.demand.terms.wait {
            Wait::Forever => Moment::NEVER,
            Wait::For(limit) => self.asked.after(limit),
            Wait::None => self.answer_by(),
        }
    }

    /// When it has to get an answer, whether or not the server has answered.
    pub(super) fn answer_by(&self) -> Moment {
        match self.demand.terms.wait {
            Wait::Forever => Moment::NEVER,
            Wait::For(limit) => self.asked.after(limit).after(self.demand.terms.timeout),
            Wait::None if planted!(NextLook) => self.asked.after(Duration::from_secs(9)),
            Wait::None => self.asked.after(self.demand.terms.timeout),
        }
    }

    /// When its time limit for an outage passes.
    pub(super) fn outage_end(&self, useful: Moment) -> Moment {
        self.asked.max(useful).after(self.demand.terms.outage)
    }
}

/// The error of a waiter when the lock is busy.
pub(super) fn busy<W>(
    waiter: &WaitingCall<W>,
    blocker: Option<&Blocker>,
    now: Moment,
) -> LockError {
    let holder = blocker.and_then(Blocker::holder).map(Box::new);
    let key = waiter.demand.key().to_string();
    LockError::Busy { key, waited: now.since(waiter.asked), holder }
}

/// The error of a waiter that has had no answer.
pub(super) fn unanswered<W>(waiter: &WaitingCall<W>) -> LockError {
    LockError::backend(Some(waiter.demand.key()), &Fault::no_answer())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::Wait;
    use crate::domain::demand::tests::demand;

    /// What is done with the waiters in one step.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Join(Wait),
        Leave(u64),
        Pop,
        /// The calls that arrived this number of milliseconds ago.
        PopNoWait(u64),
        /// Puts off those that are overdue, or takes them out when nothing more can be put off.
        Overdue,
        TakeLate(u64),
        OverOutage,
        Drain,
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
        let limit = (1..2_000_u64).prop_map(|limit| Wait::For(Duration::from_millis(limit)));
        let wait = prop_oneof![Just(Wait::Forever), Just(Wait::None), limit];
        let step = prop_oneof![
            4 => wait.prop_map(Step::Join),
            2 => (0..20_u64).prop_map(Step::Leave),
            2 => Just(Step::Pop),
            2 => (0..1_500_u64).prop_map(Step::PopNoWait),
            3 => Just(Step::Overdue),
            1 => (0..1_500_u64).prop_map(Step::TakeLate),
            1 => Just(Step::OverOutage),
            1 => Just(Step::Drain),
        ];
        prop::collection::vec((0..1_500_u64, step), 1..60)
    }

    /// The same, as a list that is searched.
    #[derive(Default)]
    struct Plain(Vec<(WaitingCall<()>, bool)>);

    impl Plain {
        fn end((waiter, is_late): &(WaitingCall<()>, bool)) -> Moment {
            if *is_late { waiter.answer_by() } else { waiter.until() }
        }

        fn take(&mut self, fits: impl Fn(&(WaitingCall<()>, bool)) -> bool) -> Vec<u64> {
            self.0.extract_if(.., |one| fits(one)).map(|(waiter, _)| waiter.id).collect()
        }

        fn take_first(&mut self, fits: impl Fn(&(WaitingCall<()>, bool)) -> bool) -> Option<u64> {
            let index = self.0.iter().position(fits)?;
            Some(self.0.remove(index).0.id)
        }
    }

    /// Does the step with both, and returns who was taken out of each.
    fn both(
        step: Step,
        now: Moment,
        id: u64,
        (waiters, plain): (&mut Waiters<()>, &mut Plain),
    ) -> (Vec<u64>, Vec<u64>) {
        let ids = |found: Vec<WaitingCall<()>>| found.iter().map(|waiter| waiter.id).collect();
        let one = |found: Option<WaitingCall<()>>| found.iter().map(|waiter| waiter.id).collect();
        match step {
            Step::Join(wait) => {
                let demand = Arc::new(demand("k").with(|terms| terms.wait = wait));
                let waiter =
                    || WaitingCall { id, handle: (), demand: Arc::clone(&demand), asked: now };
                waiters.join(waiter());
                plain.0.push((waiter(), false));
                Default::default()
            }
            Step::Leave(id) => (one(waiters.leave(id)), plain.take(|(waiter, _)| waiter.id == id)),
            Step::Pop => (one(waiters.pop()), plain.take_first(|_| true).into_iter().collect()),
            Step::PopNoWait(age) => {
                let then = before(now, age);
                let first =
                    plain.take_first(|(waiter, _)| !waiter.can_wait() && waiter.asked <= then);
                (one(waiters.pop_no_wait(then)), first.into_iter().collect())
            }
            Step::Overdue => (overdue(waiters, now), put_off(plain, now)),
            Step::TakeLate(age) => {
                let then = before(now, age);
                let mut found: Vec<u64> = ids(waiters.take_late(then));
                found.sort_unstable();
                (found, plain.take(|(waiter, is_late)| *is_late && waiter.asked <= then))
            }
            Step::OverOutage => {
                let is_due = waiters.outage_due(Moment::START) <= now;
                let is_over = |waiter: &WaitingCall<()>| waiter.outage_end(Moment::START) <= now;
                let found = ids(waiters.over_outage(Moment::START, now));
                (found, plain.take(|(waiter, _)| is_due && is_over(waiter)))
            }
            Step::Drain => (ids(waiters.drain()), plain.take(|_| true)),
        }
    }

    fn before(now: Moment, millis: u64) -> Moment {
        Moment::from_nanos(now.as_nanos().saturating_sub(millis * 1_000_000))
    }

    fn overdue(waiters: &mut Waiters<()>, now: Moment) -> Vec<u64> {
        let mut out = Vec::new();
        while let Some(waiter) = waiters.overdue(now) {
            let (id, answer_by) = (waiter.id, waiter.answer_by());
            if answer_by > now {
                waiters.put_off(id, answer_by);
            } else {
                out.extend(waiters.leave(id).map(|waiter| waiter.id));
            }
        }
        out.sort_unstable();
        out
    }

    fn put_off(plain: &mut Plain, now: Moment) -> Vec<u64> {
        let out = plain.take(|one| Plain::end(one) <= now && one.0.answer_by() <= now);
        for one in plain.0.iter_mut().filter(|one| Plain::end(one) <= now) {
            one.1 = true;
        }
        out
    }

    proptest! {
        #[test]
        fn waiters_are_treated_as_a_plain_list_of_them_would_be(steps in steps()) {
            let (mut waiters, mut plain) = (Waiters::default(), Plain::default());
            let mut now = Moment::at_millis(1);
            for (id, (pause, step)) in (0..).zip(steps) {
                now = now.after(Duration::from_millis(pause));
                let (found, expected) = both(step, now, id, (&mut waiters, &mut plain));
                prop_assert_eq!(found, expected, "{:?}", step);
                let left: Vec<_> = waiters.iter().map(|waiter| waiter.id).collect();
                let expected: Vec<_> = plain.0.iter().map(|(waiter, _)| waiter.id).collect();
                prop_assert_eq!(&left, &expected, "{:?}", step);
                prop_assert_eq!(waiters.is_empty(), expected.is_empty());
                prop_assert_eq!(waiters.first().map(|first| first.id), expected.first().copied());
                let any = |fits: fn(&(WaitingCall<()>, bool)) -> bool| plain.0.iter().any(fits);
                prop_assert_eq!(waiters.any_can_wait(), any(|(waiter, _)| waiter.can_wait()));
                prop_assert_eq!(waiters.any_no_wait(), any(|(waiter, _)| !waiter.can_wait()));
                prop_assert!(waiters.any_late() || !any(|(_, is_late)| *is_late));
                let due = plain.0.iter().map(Plain::end).min().unwrap_or(Moment::NEVER);
                prop_assert_eq!(waiters.due(), due);
            }
        }
    }

    fn many_waiters(count: u64) -> Waiters<()> {
        let mut waiters = Waiters::default();
        let demand = Arc::new(demand("k"));
        for id in 0..count {
            let demand = Arc::clone(&demand);
            waiters.join(WaitingCall { id, handle: (), demand, asked: Moment::START });
        }
        waiters
    }

    #[test]
    fn gaps_in_the_queue_are_removed_when_they_make_up_most_of_it() {
        let mut many = many_waiters(100);
        (1..=50).for_each(|id| assert!(many.leave(id).is_some()));
        assert_eq!(many.queue.len(), 100);
        assert!(many.leave(51).is_some());
        assert_eq!((many.queue.len(), many.iter().count()), (49, 49));
        let mut few = many_waiters(32);
        (1..=30).for_each(|id| assert!(few.leave(id).is_some()));
        assert_eq!((few.queue.len(), few.iter().count()), (32, 2), "too few to care");
    }
}
