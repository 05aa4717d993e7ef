//! The lease of a hold, as far as this process knows it.

use std::time::Duration;

use super::question::Open;
use super::{Attempt, Env};
use crate::domain::clock::Moment;
use crate::domain::lease;

/// The lease on the server, whichever caller of this process holds the lock.
#[derive(Debug)]
pub(super) struct Lease {
    /// The ttl that renewals ask for; `None` for one that never ends.
    pub(super) ttl: Option<Duration>,
    /// When the last question that was answered was sent.
    pub(super) sent: Moment,
    pub(super) end: Moment,
    pub(super) renew_at: Moment,
    /// Set when a cut to this ttl has an unknown outcome: the server may execute it at any time, also
    /// behind a later renewal for more. So no answer is trusted for longer than this.
    pub(super) at_most: Option<Duration>,
}

impl Lease {
    /// The lease that an answered question asked for.
    pub(super) fn granted(open: &Open, attempt: &Attempt) -> Self {
        let at_most = attempt.token().unsettled().at_most;
        let (ttl, sent, renew_at) = (open.ttl, open.sent, Moment::NEVER);
        let lease = Self { ttl, sent, end: sent, renew_at, at_most };
        Self { end: lease::deadline(sent, lease.trusted(ttl)), ..lease }
    }

    pub(super) fn extend(&mut self, open: &Open) -> Moment {
        let end = lease::deadline(open.sent, self.trusted(open.ttl));
        self.sent = self.sent.max(open.sent);
        self.end = self.end.max(end);
        end
    }

    /// How much of a ttl that was asked for can be trusted.
    fn trusted(&self, ttl: Option<Duration>) -> Option<Duration> {
        match (ttl, self.at_most) {
            (Some(ttl), Some(most)) => Some(ttl.min(most)),
            (ttl, most) => ttl.or(most),
        }
    }

    /// A cut to this ttl may be executed at any time from now on.
    pub(super) fn may_be_cut(&mut self, ttl: Option<Duration>) {
        self.at_most = self.trusted(ttl);
    }

    /// Sets the time of the next renewal. None is needed when the lease lasts until `limit`.
    pub(super) fn schedule(&mut self, renews: bool, limit: Moment, env: &Env<'_>) {
        self.renew_at = match self.trusted(self.ttl) {
            Some(ttl) if renews && self.end < limit => {
                lease::renewal(self.sent, ttl, env.spread, env.phase())
            }
            _ => Moment::NEVER,
        };
    }

    /// Whether more than half of it is left.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.ttl.is_some_and(|ttl| self.end.since(now) > ttl / 2)
    }
}
