//! Tells of calls that wait for long, which may be because two of them wait for each other.

use std::sync::Arc;
use std::time::Duration;

use super::{Effects, Env, Later, Machine, Rank, Stage, Waiter};
use crate::LockError;
use crate::domain::clock::Moment;
use crate::domain::demand::ENDLESS;

/// How long a call waits before subscribers are told. They are told again after twice that time, and
/// so on.
const LONG: Duration = Duration::from_secs(30);

impl<W> Machine<W> {
    /// When to tell that the first waiter waits for long: for as long as this process has the lock,
    /// where it has. A queue in which each waiter gets its turn is told of at most once in that time.
    pub(super) fn long_wait_due(&self) -> Moment {
        // Those who want to lead wait through outages, and have nothing else to do.
        let can_be_long = |first: &&Waiter<W>| first.demand.terms.outage < ENDLESS;
        let Some(first) = self.waiters.first().filter(can_be_long) else { return Moment::NEVER };
        let since = match &self.stage {
            Stage::Held(held) => first.asked.max(held.hold().since),
            _ => first.asked,
        };
        let next = since.after(LONG.max(self.warned.since(since).saturating_mul(2)));
        next.max(self.warned.after(LONG))
    }

    pub(super) fn tell_long_wait(&mut self, env: &Env<'_>, out: &mut Effects<W>) {
        if self.long_wait_due() > env.now {
            return;
        }
        self.warned = env.now;
        let Some(first) = self.waiters.first() else { return };
        // That a server fails is told of by itself.
        if let (error @ LockError::Busy { .. }, Rank::Alone | Rank::Front) =
            (self.refusal(first, env.now), env.rank)
        {
            out.later.push(Later::LongWait(Arc::clone(&first.demand), Box::new(error)));
        }
    }
}
