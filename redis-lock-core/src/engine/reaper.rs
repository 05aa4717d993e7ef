//! Tokens that wait for the next try to release them.

use std::collections::BTreeMap;

use crate::domain::clock::Moment;
use crate::lock::{Confirmation, Reap};

/// Tokens whose release was refused, has an unknown outcome, or must be repeated because an
/// acquisition of them may still be on its way. Those that are on the queue of a place are not here.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    pausing: BTreeMap<(Moment, u64), Box<Reap>>,
    number: u64,
    /// Nobody has to hear before this that no answer came.
    deadline_check: Option<Moment>,
}

impl Reaper {
    /// Releases a token again at this time.
    pub(crate) fn add(&mut self, at: Moment, reap: Box<Reap>) {
        self.number = self.number.wrapping_add(1);
        let deadline = reap.deadline();
        let check = self.deadline_check.unwrap_or(Moment::NEVER);
        self.deadline_check = Some(check.min(deadline));
        self.pausing.insert((at, self.number), reap);
    }

    /// A token that is to be released now.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<Box<Reap>> {
        let first = self.pausing.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Those who were promised an answer by now.
    pub(crate) fn overdue(&mut self, now: Moment) -> Vec<Confirmation> {
        if self.deadline_check.is_none_or(|check| check > now) {
            return Vec::new();
        }
        let overdue = |reap: &mut Box<Reap>| (reap.deadline() <= now).then(|| reap.overdue());
        let overdue: Vec<_> = self.pausing.values_mut().filter_map(overdue).flatten().collect();
        self.deadline_check = self.pausing.values().map(|reap| reap.deadline()).min();
        overdue
    }

    /// When something is to be done.
    pub(crate) fn due(&self) -> Moment {
        let next = self.pausing.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        next.min(self.deadline_check.unwrap_or(Moment::NEVER))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pausing.is_empty()
    }

    /// Whether every release that was asked for has been answered at least once.
    pub(crate) fn is_settled(&self) -> bool {
        self.pausing.values().all(|reap| reap.was_answered())
    }

    /// Takes all of them out, to be released now, or given up.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Box<Reap>> + use<> {
        std::mem::take(&mut self.pausing).into_values()
    }

    #[cfg(test)]
    pub(crate) fn reaps(&self) -> impl Iterator<Item = &Reap> {
        self.pausing.values().map(|reap| &**reap)
    }
}
