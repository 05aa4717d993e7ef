//! The waiters for one lock in this process, in the order of arrival.

use std::mem;
use std::time::Duration;

use super::Waiter;
use super::crowd::Crowd;
use crate::domain::clock::Moment;

/// How often to check whether a waiter's time limit for an outage has passed.
const OUTAGE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The waiters of one lock.
#[derive(Debug)]
pub(crate) struct Waiters<W> {
    callers: Callers<W>,
    /// No waiter's time limit for an outage passes before this.
    outage_check: Moment,
}

#[derive(Debug)]
enum Callers<W> {
    Empty,
    /// Most locks never have a second waiter, and the first one needs no memory of its own.
    One(Single<W>),
    /// At least one.
    Several(Box<Crowd<W>>),
}

/// The only waiter.
#[derive(Debug)]
struct Single<W> {
    waiter: Waiter<W>,
    /// Whether its wait has ended and it has had no answer yet.
    is_late: bool,
}

impl<W> Single<W> {
    /// When it has to get an answer.
    fn end(&self) -> Moment {
        if self.is_late { self.waiter.answer_by() } else { self.waiter.until() }
    }
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self { callers: Callers::Empty, outage_check: Moment::START }
    }
}

impl<W> Waiters<W> {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.callers, Callers::Empty)
    }

    pub(super) fn join(&mut self, waiter: Waiter<W>) {
        if let Callers::Several(crowd) = &mut self.callers {
            return crowd.join(waiter);
        }
        self.callers = match mem::replace(&mut self.callers, Callers::Empty) {
            Callers::One(single) => Callers::Several(Box::new(single.and(waiter))),
            _ => Callers::One(Single { waiter, is_late: false }),
        };
    }

    /// Takes out a waiter that has given up.
    pub(super) fn leave(&mut self, id: u64) -> Option<Waiter<W>> {
        self.take_out(|single| single.waiter.id == id, |crowd| crowd.leave(id))
    }

    pub(super) fn first(&self) -> Option<&Waiter<W>> {
        match &self.callers {
            Callers::Empty => None,
            Callers::One(single) => Some(&single.waiter),
            Callers::Several(crowd) => crowd.first(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Waiter<W>> {
        self.take_out(|_| true, Crowd::pop)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter<W>> {
        let (single, crowd) = match &self.callers {
            Callers::Empty => (None, None),
            Callers::One(single) => (Some(&single.waiter), None),
            Callers::Several(crowd) => (None, Some(crowd)),
        };
        single.into_iter().chain(crowd.into_iter().flat_map(|crowd| crowd.iter()))
    }

    pub(super) fn any_can_wait(&self) -> bool {
        self.any(|single| single.waiter.can_wait(), Crowd::any_can_wait)
    }

    pub(super) fn any_no_wait(&self) -> bool {
        self.any(|single| !single.waiter.can_wait(), Crowd::any_no_wait)
    }

    /// Takes out the next caller that does not wait, if it arrived before `moment`.
    pub(super) fn pop_no_wait(&mut self, moment: Moment) -> Option<Waiter<W>> {
        let is_next =
            |single: &Single<W>| !single.waiter.can_wait() && single.waiter.asked <= moment;
        self.take_out(is_next, |crowd| crowd.pop_no_wait(moment))
    }

    /// The next waiter whose wait has ended at `now`. It is not taken out; see
    /// [`put_off`](Self::put_off) and [`leave`](Self::leave).
    pub(super) fn overdue(&mut self, now: Moment) -> Option<&Waiter<W>> {
        match &mut self.callers {
            Callers::One(single) if single.end() <= now => Some(&single.waiter),
            Callers::Several(crowd) => crowd.overdue(now),
            Callers::Empty | Callers::One(_) => None,
        }
    }

    /// The waiter, which was the next overdue one, will be refused by the first answer, or when it has
    /// to get one.
    pub(super) fn put_off(&mut self, id: u64, answer_by: Moment) {
        match &mut self.callers {
            Callers::Empty => {}
            Callers::One(single) => single.is_late = true,
            Callers::Several(crowd) => crowd.put_off(id, answer_by),
        }
    }

    /// Takes out the waiters that were put off, if they arrived no later than `moment`.
    pub(super) fn take_late(&mut self, moment: Moment) -> Vec<Waiter<W>> {
        let is_meant = |single: &Single<W>| single.is_late && single.waiter.asked <= moment;
        self.take_out_all(is_meant, |crowd| crowd.take_late(moment))
    }

    /// Whether a waiter was put off and has had no answer.
    pub(super) fn any_late(&self) -> bool {
        self.any(|single| single.is_late, Crowd::any_late)
    }

    /// Takes out the waiters whose time limit for an outage has passed. The last useful answer came
    /// at `useful`.
    pub(super) fn over_outage(&mut self, useful: Moment, now: Moment) -> Vec<Waiter<W>> {
        if self.outage_due(useful) > now {
            return Vec::new();
        }
        self.outage_check = now.after(OUTAGE_CHECK_INTERVAL);
        let is_over = |single: &Single<W>| single.waiter.outage_end(useful) <= now;
        self.take_out_all(is_over, |crowd| crowd.over_outage(useful, now))
    }

    /// When to call [`over_outage`](Self::over_outage).
    pub(super) fn outage_due(&self, useful: Moment) -> Moment {
        let due = match &self.callers {
            Callers::Empty => Moment::NEVER,
            Callers::One(single) => single.waiter.outage_end(useful),
            Callers::Several(crowd) => crowd.outage_due(useful),
        };
        due.max(self.outage_check)
    }

    /// When the next wait ends.
    pub(super) fn due(&self) -> Moment {
        match &self.callers {
            Callers::Empty => Moment::NEVER,
            Callers::One(single) => single.end(),
            Callers::Several(crowd) => crowd.due(),
        }
    }

    pub(super) fn drain(&mut self) -> Vec<Waiter<W>> {
        match mem::take(self).callers {
            Callers::Empty => Vec::new(),
            Callers::One(single) => vec![single.waiter],
            Callers::Several(crowd) => crowd.into_all(),
        }
    }
}

impl<W> Waiters<W> {
    fn any(
        &self,
        of_one: impl FnOnce(&Single<W>) -> bool,
        of_several: fn(&Crowd<W>) -> bool,
    ) -> bool {
        match &self.callers {
            Callers::Empty => false,
            Callers::One(single) => of_one(single),
            Callers::Several(crowd) => of_several(crowd),
        }
    }

    fn take_out(
        &mut self,
        is_meant: impl FnOnce(&Single<W>) -> bool,
        of_several: impl FnOnce(&mut Crowd<W>) -> Option<Waiter<W>>,
    ) -> Option<Waiter<W>> {
        match &mut self.callers {
            Callers::Several(crowd) => {
                let found = of_several(crowd);
                // Nobody needs no memory.
                if crowd.is_empty() {
                    self.callers = Callers::Empty;
                }
                found
            }
            Callers::One(single) if is_meant(single) => {
                match mem::replace(&mut self.callers, Callers::Empty) {
                    Callers::One(single) => Some(single.waiter),
                    _ => None,
                }
            }
            Callers::Empty | Callers::One(_) => None,
        }
    }

    fn take_out_all(
        &mut self,
        is_meant: impl FnOnce(&Single<W>) -> bool,
        of_several: impl FnOnce(&mut Crowd<W>) -> Vec<Waiter<W>>,
    ) -> Vec<Waiter<W>> {
        let mut found = Vec::new();
        let single = self.take_out(is_meant, |crowd| {
            found = of_several(crowd);
            None
        });
        found.extend(single);
        found
    }
}

impl<W> Single<W> {
    /// The two of them.
    fn and(self, waiter: Waiter<W>) -> Crowd<W> {
        let (id, answer_by) = (self.waiter.id, self.waiter.answer_by());
        let mut crowd = Crowd::default();
        crowd.join(self.waiter);
        if self.is_late {
            crowd.put_off(id, answer_by);
        }
        crowd.join(waiter);
        crowd
    }
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
        /// Of those that arrived so many milliseconds ago.
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
    struct Plain(Vec<(Waiter<()>, bool)>);

    impl Plain {
        fn end((waiter, is_late): &(Waiter<()>, bool)) -> Moment {
            if *is_late { waiter.answer_by() } else { waiter.until() }
        }

        fn take(&mut self, fits: impl Fn(&(Waiter<()>, bool)) -> bool) -> Vec<u64> {
            self.0.extract_if(.., |one| fits(one)).map(|(waiter, _)| waiter.id).collect()
        }

        fn take_first(&mut self, fits: impl Fn(&(Waiter<()>, bool)) -> bool) -> Option<u64> {
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
        let ids = |found: Vec<Waiter<()>>| found.iter().map(|waiter| waiter.id).collect();
        let one = |found: Option<Waiter<()>>| found.iter().map(|waiter| waiter.id).collect();
        match step {
            Step::Join(wait) => {
                let demand = Arc::new(demand("k").with(|terms| terms.wait = wait));
                let waiter = || Waiter { id, handle: (), demand: Arc::clone(&demand), asked: now };
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
                let is_over = |waiter: &Waiter<()>| waiter.outage_end(Moment::START) <= now;
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
        fn one_waiter_and_several_are_treated_as_a_plain_list_of_them_would_be(steps in steps()) {
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
                let any = |fits: fn(&(Waiter<()>, bool)) -> bool| plain.0.iter().any(fits);
                prop_assert_eq!(waiters.any_can_wait(), any(|(waiter, _)| waiter.can_wait()));
                prop_assert_eq!(waiters.any_no_wait(), any(|(waiter, _)| !waiter.can_wait()));
                prop_assert!(waiters.any_late() || !any(|(_, is_late)| *is_late));
                let due = plain.0.iter().map(Plain::end).min().unwrap_or(Moment::NEVER);
                prop_assert_eq!(waiters.due(), due);
            }
        }
    }

    #[test]
    fn a_lock_that_nobody_waits_for_has_no_list() {
        assert!(size_of::<Waiters<u64>>() <= 56);
        let mut waiters = Waiters::default();
        let demand = Arc::new(demand("k"));
        for id in 0..3 {
            let demand = Arc::clone(&demand);
            waiters.join(Waiter { id, handle: (), demand, asked: Moment::START });
        }
        assert!(matches!(waiters.callers, Callers::Several(_)));
        for id in [1, 0, 2] {
            assert!(waiters.leave(id).is_some());
        }
        assert!(matches!(waiters.callers, Callers::Empty));
    }
}
