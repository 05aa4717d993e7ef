//! Beginning a hold by a message, before the server has confirmed the grant.
//!
//! A waiter that is notified of its grant would need another round trip until it has the server's
//! answer. Callers that ask for `linger` trade something for speed, and begin at once. This is why no
//! two guards are valid at the same time even so:
//!
//! - Each asking for a place in the queue has a number, and the message repeats it. So the server
//!   granted the lock after it had executed the last asking, and so after that was sent.
//! - The server keeps a granted lock for [`CLAIM`](crate::store::CLAIM). The hold counts on that from the time at which the
//!   asking was sent, and on no more until an answer comes.
//! - An asking without an answer may still be executed, and then take the place back. So nothing
//!   begins while one is open.

use std::time::Duration;

use super::held_lease::Lease;
use super::{Effects, Env, Machine, Stage, asked_ttl};
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::kind::Kind;

/// With less than this left of the claim, the hold begins when the server has answered: an answer that
/// is late would end it at once.
const LEAST: Duration = Duration::from_millis(500);

/// The askings of one attempt for a place in the queue.
#[derive(Debug, Default)]
pub(super) struct Askings {
    count: u32,
    /// The number of the last one, if its grant may be announced, and when it was sent.
    last: Option<(u32, Moment)>,
}

impl Askings {
    /// The number of the next one; `None` if nothing begins by its grant.
    pub(super) fn next(&mut self, begins_early: bool, now: Moment) -> Option<u32> {
        self.count = self.count.saturating_add(1);
        self.last = begins_early.then_some((self.count, now));
        begins_early.then_some(self.count)
    }

    /// When the asking of this number was sent, if it is the last one.
    fn sent(&self, number: u32) -> Option<Moment> {
        let (last, sent) = self.last?;
        (last == number).then_some(sent)
    }
}

impl Demand {
    /// Whether its callers may begin before the server has confirmed what a message says.
    pub(super) fn begins_early(&self) -> bool {
        self.terms.linger.is_some()
            && self.kind == Kind::Mutex
            && self.terms.renew
            && !self.terms.fenced
            && self.adopts.is_none()
    }
}

impl<W> Machine<W> {
    /// Begins the hold of the first waiter, if the message names the last asking and enough of the claim
    /// is left. The server is asked to confirm it in the same step.
    pub(super) fn begin_early(&mut self, asking: u32, env: &Env<'_>, out: &mut Effects<W>) -> bool {
        if self.early_lease(asking, env.now).is_none() {
            return false;
        }
        self.refuse_overdue_after_busy(env, out);
        let Some(lease) = self.early_lease(asking, env.now) else { return false };
        self.begin(lease, env.now, None, env, out);
        self.maintain_hold(env, out);
        true
    }

    fn early_lease(&self, asking: u32, now: Moment) -> Option<Lease> {
        let (Stage::Contending(contending), None) = (&self.stage, &self.open) else { return None };
        let demand = &self.waiters.first()?.demand;
        if !demand.begins_early() || !contending.attempt.suits(demand) {
            return None;
        }
        let sent = contending.askings.sent(asking)?;
        let lease = Lease::announced(asked_ttl(demand)?, sent);
        (lease.end.since(now) >= LEAST).then_some(lease)
    }
}
