//! The reaper: tokens that wait for the next try to release them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::clock::Moment;
use crate::domain::names::Names;
use crate::lock::{Confirmation, Reap};

/// When a release is due, and its number among those that were added.
type Due = (Moment, u64);

/// Tokens whose release was refused, has an unknown outcome, or must be repeated because an
/// acquisition of them may still be executed. Tokens whose release is in the queue of a place are
/// not here.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    pausing: BTreeMap<Due, Box<Reap>>,
    number: u64,
    /// By key, those that no server has answered yet.
    owed: BTreeMap<Arc<str>, BTreeSet<Due>>,
    /// The earliest time limit of a caller.
    deadline_check: Option<Moment>,
    /// Whether the engine has ended. Then tokens are only added.
    is_over: bool,
}

impl Reaper {
    /// Releases a token again at this time. After the end of the engine it is returned, to be given up.
    pub(crate) fn keep(&mut self, at: Moment, reap: Box<Reap>) -> Option<Box<Reap>> {
        if self.is_over {
            return Some(reap);
        }
        self.add(at, reap);
        None
    }

    /// From now on nothing is kept here.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Releases a token again at this time.
    pub(crate) fn add(&mut self, at: Moment, reap: Box<Reap>) {
        self.number = self.number.wrapping_add(1);
        let deadline = reap.deadline();
        let check = self.deadline_check.unwrap_or(Moment::NEVER);
        self.deadline_check = Some(check.min(deadline));
        let due = (at, self.number);
        if !reap.was_answered() {
            for names in reap.names().all() {
                self.owed.entry(names.shared_main()).or_default().insert(due);
            }
        }
        self.pausing.insert(due, reap);
    }

    fn take(&mut self, due: Due) -> Option<Box<Reap>> {
        let reap = self.pausing.remove(&due)?;
        for names in reap.names().all() {
            if let Some(owed) = self.owed.get_mut(names.main()) {
                owed.remove(&due);
                if owed.is_empty() {
                    self.owed.remove(names.main());
                }
            }
        }
        Some(reap)
    }

    /// Takes out the releases of these keys that no server has answered, in their order.
    pub(crate) fn take_owed(&mut self, names: &Names) -> impl Iterator<Item = Box<Reap>> {
        let of_each = names.all().filter_map(|names| self.owed.get(names.main()));
        let owed: BTreeSet<_> = of_each.flatten().copied().collect();
        owed.into_iter().filter_map(|due| self.take(due))
    }

    /// Takes out the tokens that are due to be released.
    pub(crate) fn take_due(&mut self, now: Moment) -> impl Iterator<Item = Box<Reap>> + use<> {
        let due = self.pausing.keys().copied().take_while(|due| due.0 <= now);
        let due: Vec<_> = due.collect();
        let taken: Vec<_> = due.into_iter().filter_map(|due| self.take(due)).collect();
        taken.into_iter()
    }

    /// Takes out the tokens whose last try has failed, although they are not due yet.
    pub(crate) fn take_failed(&mut self) -> impl Iterator<Item = Box<Reap>> + use<> {
        let failed = self.pausing.iter().filter(|(_, reap)| reap.has_failed());
        let failed: Vec<_> = failed.map(|(due, _)| *due).collect();
        let taken: Vec<_> = failed.into_iter().filter_map(|due| self.take(due)).collect();
        taken.into_iter()
    }

    /// Callers whose time limit has passed.
    pub(crate) fn overdue(&mut self, now: Moment) -> Vec<Confirmation> {
        if self.deadline_check.is_none_or(|check| check > now) {
            return Vec::new();
        }
        let overdue = |reap: &mut Box<Reap>| (reap.deadline() <= now).then(|| reap.overdue());
        let overdue: Vec<_> = self.pausing.values_mut().filter_map(overdue).flatten().collect();
        self.deadline_check = self.pausing.values().map(|reap| reap.deadline()).min();
        overdue
    }

    /// When the next release or time limit is due.
    pub(crate) fn due(&self) -> Moment {
        let next = self.pausing.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        next.min(self.deadline_check.unwrap_or(Moment::NEVER))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pausing.is_empty()
    }

    /// Takes out all tokens, to be given up. Their callers have left.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Box<Reap>> + use<> {
        self.owed.clear();
        std::mem::take(&mut self.pausing).into_values()
    }

    #[cfg(test)]
    pub(crate) fn reaps(&self) -> impl Iterator<Item = &Reap> {
        self.pausing.values().map(|reap| &**reap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::demand::tests::demand;
    use crate::domain::fault::{Fault, FaultClass};
    use crate::lock::tests::{Bench, Confirmed};
    use crate::lock::{Next, Outcome};
    use crate::store::Answer;

    fn at(millis: u64) -> Moment {
        Moment::at_millis(100_000 + millis)
    }

    /// The release of a hold whose caller waits, with an early time limit.
    fn reap() -> (Box<Reap>, Confirmed) {
        let mut bench = Bench::new();
        let hold = bench.hold(1, demand("k"));
        let confirmed = bench.release(&hold);
        (bench.released().take(), confirmed)
    }

    /// The same without a waiting caller.
    fn unawaited() -> Box<Reap> {
        let (mut reap, _) = reap();
        reap.overdue();
        reap
    }

    /// A release that was answered and must be repeated.
    fn answered() -> Box<Reap> {
        let (mut reap, now) = (unawaited(), Moment::at_millis(2_000));
        reap.put_in_doubt(now, None);
        match reap.outcome(Outcome::Answered(Answer::Done), now, now) {
            (None, Next::Again(_, reap)) => reap,
            other => panic!("{other:?}"),
        }
    }

    fn give_up(reaper: &mut Reaper) -> usize {
        reaper.drain().map(|reap| drop(reap.give_up())).fold(0, |count, ()| count + 1)
    }

    #[test]
    fn tokens_are_released_again_at_their_times_and_in_their_order() {
        let mut reaper = Reaper::default();
        assert!(reaper.is_empty() && reaper.due() == Moment::NEVER);
        for millis in [20, 10, 20] {
            reaper.add(at(millis), unawaited());
        }
        assert!(!reaper.is_empty());
        assert_eq!(reaper.due(), at(10));
        assert_eq!(reaper.take_due(at(9)).count(), 0);
        let due = reaper.take_due(at(10)).map(|reap| drop(reap.give_up()));
        assert_eq!(due.count(), 1);
        assert_eq!(reaper.take_due(at(10)).count(), 0);
        assert_eq!(reaper.reaps().count(), 2);
        assert_eq!(give_up(&mut reaper), 2);
        assert!(reaper.is_empty() && reaper.due() == Moment::NEVER);
    }

    #[test]
    fn a_caller_hears_at_its_deadline_that_no_answer_came() {
        let (reap, mut confirmed) = reap();
        let deadline = reap.deadline();
        let mut reaper = Reaper::default();
        reaper.add(at(0), reap);
        assert_eq!(reaper.due(), deadline, "sooner than the next try");
        let before = Moment::from_nanos(deadline.as_nanos() - 1);
        assert!(reaper.overdue(before).is_empty());
        let overdue = reaper.overdue(deadline);
        assert_eq!(overdue.len(), 1);
        for (confirm, outcome) in overdue {
            confirm.send(outcome).unwrap();
        }
        assert!(confirmed.try_recv().unwrap().is_err());
        assert!(reaper.overdue(at(0)).is_empty(), "once");
        assert_eq!(reaper.due(), at(0), "the release goes on");
        assert_eq!(give_up(&mut reaper), 1);
    }

    #[test]
    fn a_caller_hears_it_also_when_nobody_looked_at_its_deadline() {
        let (reap, _confirmed) = reap();
        let late = reap.deadline().after(std::time::Duration::from_secs(1));
        let mut reaper = Reaper::default();
        reaper.add(at(0), reap);
        assert_eq!(reaper.overdue(late).len(), 1);
        assert_eq!(give_up(&mut reaper), 1);
    }

    #[test]
    fn what_no_server_has_answered_is_owed_for_its_key_and_nothing_else_is() {
        let mut reaper = Reaper::default();
        reaper.add(at(10), answered());
        assert!(reaper.owed.is_empty(), "it was answered, and is only repeated");
        for millis in [30, 20] {
            reaper.add(at(millis), unawaited());
        }
        let (names, other) = (demand("k").names, demand("other").names);
        assert!(reaper.take_owed(&other).next().is_none());
        let given_up: Vec<_> = reaper.take_owed(&names).map(|reap| reap.give_up()).collect();
        assert_eq!(given_up.len(), 2);
        assert!(reaper.owed.is_empty() && reaper.due() == at(10), "the repetition stays");
        reaper.add(at(5), unawaited());
        let due = reaper.take_due(at(5));
        due.for_each(|reap| drop(reap.give_up()));
        assert!(reaper.owed.is_empty(), "it is on its way");
        assert_eq!(give_up(&mut reaper), 1);
    }

    #[test]
    fn a_new_connection_hastens_those_that_have_failed_and_no_others() {
        let mut reaper = Reaper::default();
        reaper.add(at(20), answered());
        assert_eq!(reaper.take_failed().count(), 0, "it is due at a time of its own");
        let (reap, now) = (unawaited(), Moment::at_millis(2_000));
        let refused = Outcome::Refused(Fault::new(FaultClass::Refused, "planted"));
        match reap.outcome(refused, now, now).1 {
            Next::Again(_, reap) => reaper.add(at(30), reap),
            done @ Next::Done(_) => panic!("{done:?}"),
        }
        let failed = reaper.take_failed().map(|reap| drop(reap.give_up()));
        assert_eq!((failed.count(), reaper.due()), (1, at(20)));
        assert_eq!(give_up(&mut reaper), 1);
    }
}
