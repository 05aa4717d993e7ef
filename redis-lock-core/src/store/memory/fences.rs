//! The fencing numbers of one lock.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Moment;

/// How long a number is remembered that nobody asks for.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// The last number, and whom it was given to.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    number: u64,
    owner: Arc<str>,
    until: Moment,
}

impl Last {
    /// The number, and whose it is.
    pub(super) fn of(&self) -> (u64, &str) {
        (self.number, &self.owner)
    }

    /// What a test compares, and sets to what the server has.
    #[cfg(test)]
    pub(crate) fn parts(&mut self) -> (&mut u64, &str, &mut Moment) {
        (&mut self.number, &self.owner, &mut self.until)
    }

    pub(super) fn is_forgotten(&self, now: Moment) -> bool {
        self.until <= now
    }
}

/// Goes on from `reached`, unless the counter has served somebody else meanwhile.
pub(super) fn raise(last: &mut Option<Last>, token: &Arc<str>, reached: u64, now: Moment) {
    if last.as_ref().is_none_or(|last| last.owner == *token && last.number < reached) {
        *last = Some(Last { number: reached, owner: Arc::clone(token), until: now.after(IDLE) });
    }
}

/// Reserves `count` numbers above all that were given for any of the locks; returns the last of
/// them. The same token gets the same again unless `anew`.
pub(super) fn number(
    lasts: &mut [&mut Option<Last>],
    token: &Arc<str>,
    count: u32,
    anew: bool,
    now: Moment,
) -> u64 {
    let known =
        |last: &&mut Option<Last>| last.as_ref().filter(|last| last.owner == *token).is_some();
    let most = lasts.iter().filter_map(|last| Some(last.as_ref()?.number)).max();
    if let (Some(most), false) = (most, anew)
        && lasts.iter().all(known)
    {
        return most;
    }
    // Above the clock, so that numbers rise although old ones are forgotten.
    let floor = u64::try_from(now.since(Moment::START).as_micros()).unwrap_or(u64::MAX);
    let first = most.map_or(floor, |most| most.saturating_add(1).max(floor));
    let number = first.saturating_add(u64::from(count.saturating_sub(1)));
    // A number that is ahead of the clock is kept until the clock is past it, or it would be given
    // again.
    let ahead = Duration::from_micros(number.saturating_sub(floor));
    let until = now.after(ahead).after(IDLE);
    for last in lasts {
        **last = Some(Last { number, owner: Arc::clone(token), until });
    }
    number
}
