//! The fencing numbers of one lock.

use std::sync::Arc;
use std::time::Duration;

use crate::BackendErrorKind;
use crate::domain::clock::Moment;
use crate::domain::fault::{Fault, FaultClass};
use crate::domain::lease::{LARGEST_FENCE, read_fence};

/// How long the last number is remembered when no more are asked for.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// The last fencing number, and the token that it was given to.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    number: u64,
    owner: Arc<str>,
    /// When it is forgotten.
    pub(crate) until: Moment,
}

impl Last {
    /// Reads a server's counter; `None` for what this library did not write.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (number, owner) = text.split_once(' ')?;
        let number = read_fence(number)?;
        Some(Self { number, owner: owner.into(), until: Moment::NEVER })
    }

    /// Whether a counter that begins anew would begin above it.
    pub(super) fn is_passed(&self, now: Moment) -> bool {
        self.number < micros(now)
    }

    /// The number, and the token that it was given to.
    pub(crate) fn of(&self) -> (u64, &str) {
        (self.number, &self.owner)
    }

    pub(super) fn is_forgotten(&self, now: Moment) -> bool {
        self.until <= now
    }
}

/// Continues from `reached`, unless another token has got a number since.
pub(super) fn raise(last: &mut Option<Last>, token: &Arc<str>, reached: u64, now: Moment) {
    if last.as_ref().is_none_or(|last| last.owner == *token && last.number < reached) {
        *last = Some(Last { number: reached, owner: Arc::clone(token), until: now.after(IDLE) });
    }
}

/// Refuses an acquisition for which a counter has no `count` numbers left.
pub(super) fn check(last: Option<&Last>, count: u32, now: Moment) -> Result<(), Fault> {
    let most = last.map_or(0, |last| last.number).max(micros(now));
    let fits = most.saturating_add(count.into()) <= LARGEST_FENCE;
    if count == 0 || fits || planted!(FenceUnbounded) { Ok(()) } else { Err(odd()) }
}

/// A counter that can't be counted on from.
pub(crate) fn odd() -> Fault {
    let what = "the fencing counter of this lock is no number, or too large, so another program has \
                written it; delete it, or use another key or namespace";
    Fault::new(FaultClass::Permanent, what).of(BackendErrorKind::Foreign)
}

fn micros(now: Moment) -> u64 {
    u64::try_from(now.since(Moment::START).as_micros()).unwrap_or(u64::MAX)
}

/// Reserves `count` numbers above all that were given for any of these locks, and returns the last
/// of them. A token that asks again gets the same numbers.
pub(super) fn number(
    lasts: &mut [&mut Option<Last>],
    token: &Arc<str>,
    count: u32,
    now: Moment,
) -> u64 {
    let known =
        |last: &&mut Option<Last>| last.as_ref().filter(|last| last.owner == *token).is_some();
    let most = lasts.iter().filter_map(|last| Some(last.as_ref()?.number)).max();
    if let Some(most) = most
        && lasts.iter().all(known)
    {
        return most;
    }
    // Not below the clock, so that numbers rise even after the last one was forgotten.
    let floor = micros(now);
    let first = most.map_or(floor, |most| most.saturating_add(1).max(floor));
    let number = first.saturating_add(u64::from(count.saturating_sub(1)));
    // A number that is ahead of the clock is kept until the clock has passed it, since it would be
    // given a second time otherwise.
    let ahead = Duration::from_micros(number.saturating_sub(floor));
    let until = now.after(ahead).after(IDLE);
    for last in lasts {
        **last = Some(Last { number, owner: Arc::clone(token), until });
    }
    number
}
