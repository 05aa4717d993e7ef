//! Who is to be woken when.

use std::collections::BTreeMap;

use crate::clock::Moment;

/// A timer that is set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Alarm {
    pub(crate) at: Moment,
    number: u64,
}

/// Timers in the order of their time. Set and cancelled in logarithmic time, because most locks are
/// released long before anything is due for them.
#[derive(Debug)]
pub(super) struct Timers<T> {
    set: BTreeMap<Alarm, T>,
    number: u64,
}

impl<T> Timers<T> {
    pub(super) fn new() -> Self {
        Self { set: BTreeMap::new(), number: 0 }
    }

    pub(super) fn set(&mut self, at: Moment, target: T) -> Alarm {
        self.number = self.number.wrapping_add(1);
        let alarm = Alarm { at, number: self.number };
        self.set.insert(alarm, target);
        alarm
    }

    pub(super) fn cancel(&mut self, alarm: Alarm) {
        self.set.remove(&alarm);
    }

    /// The next target whose time has come.
    pub(super) fn pop(&mut self, now: Moment) -> Option<T> {
        let first = self.set.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Moment {
        self.set.first_key_value().map_or(Moment::NEVER, |(alarm, _)| alarm.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_and_not_before_their_time() {
        let at = Moment::at_millis;
        let mut timers = Timers::new();
        timers.set(at(20), "late");
        let gone = timers.set(at(5), "cancelled");
        timers.set(at(10), "early");
        timers.cancel(gone);
        assert_eq!(timers.next(), at(10));
        assert_eq!(timers.pop(at(9)), None);
        assert_eq!(timers.pop(at(30)), Some("early"));
        assert_eq!(timers.pop(at(30)), Some("late"));
        assert_eq!((timers.pop(at(30)), timers.next()), (None, Moment::NEVER));
    }
}
