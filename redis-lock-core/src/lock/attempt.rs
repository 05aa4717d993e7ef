//! An attempt: a token, with the lease that it asks for.

use std::sync::Arc;
use std::time::Duration;

use super::Env;
use super::question::Open;
use super::timing::UNLEASED;
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::demand::Demand;
use crate::domain::lease;
use crate::domain::token::Unsettled;
use crate::store::PLACE;

/// One attempt to get a lock, with one token.
///
/// Neither `Clone` nor `Copy`: a token is in one place at a time: in a machine, in a release that
/// was sent, or in the reaper. So it can't be forgotten, and it can't be released while a machine
/// relies on it.
#[derive(Debug)]
#[must_use = "a token that is dropped stays on the server until its lease ends"]
pub(crate) struct Attempt {
    token: Token,
    /// The lease that it asks for; `None` for a lock that never expires.
    ttl: Option<Duration>,
    /// How much longer the server keeps the key than the guard believes in its lease.
    margin: Duration,
    /// The longest lease that any question asked for, which an `extend` may have raised, with the margin.
    longest: Duration,
    on_server: OnServer,
    /// Until when a renewal without an answer may be executed.
    renewed_until: Moment,
    /// Until when the server still knows what its first question without an answer came to.
    known_until: Moment,
    /// Whether another process may use the same token.
    adopted: bool,
    /// The fingerprint in the token, which must be that of the call that is granted the lock.
    same: Option<u128>,
    /// Whether the token says that its holder may be idle, which would take time to read there.
    may_be_idle: bool,
}

/// What the server may have of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnServer {
    /// Nothing: no question about it was ever sent, or the server has removed it.
    Nothing,
    /// Everything that its questions asked for. One release, sent after them, undoes that.
    Asked,
    /// The outcome of a question is unknown, and it may be executed until then. One release is not
    /// enough.
    InDoubt { until: Moment },
}

impl Attempt {
    /// An attempt to get what a demand asks for, with this token. One that is adopted was made by another
    /// process, which gave it away at `now` or before.
    pub(super) fn of(token: Token, demand: &Demand, now: Moment) -> Self {
        let (ttl, margin, same) =
            (super::asked_ttl(demand), demand.terms.margin, demand.terms.same);
        let (adopted, doubt) = (demand.adopts.is_some(), token.unsettled().doubt);
        let on_server = match adopted {
            false => OnServer::Nothing,
            true if doubt.is_zero() || planted!(DoubtNotPassedOn) => OnServer::Asked,
            true => OnServer::InDoubt { until: now.after(doubt) },
        };
        let longest = ttl.unwrap_or(UNLEASED).saturating_add(margin);
        Self {
            token,
            ttl,
            margin,
            longest,
            on_server,
            renewed_until: Moment::START,
            known_until: Moment::NEVER,
            adopted,
            same,
            may_be_idle: false,
        }
    }

    /// Its token says that its holder may be idle.
    pub(super) fn lingering(mut self) -> Self {
        self.may_be_idle = true;
        self
    }

    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    pub(crate) fn wire(&self) -> &Arc<str> {
        self.token.wire()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    pub(crate) fn on_server(&self) -> OnServer {
        self.on_server
    }

    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// Whether its lease may stay while no body runs.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.may_be_idle
    }

    /// Whether this demand asks for the same lease.
    pub(crate) fn suits(&self, demand: &Demand) -> bool {
        let is_same = self.ttl == super::asked_ttl(demand)
            && self.margin == demand.terms.margin
            && self.same == demand.terms.same;
        self.adopted || is_same || planted!(WaitersTtl)
    }

    /// Notes that a question about it is sent, for a lease of `ttl`.
    pub(crate) fn asked(&mut self, ttl: Option<Duration>) {
        self.longest = self.longest.max(self.on_server_for(ttl));
        if self.on_server == OnServer::Nothing {
            self.on_server = OnServer::Asked;
        }
    }

    /// The outcome of a question for `ttl`, created at `sent`, is unknown: it may still be
    /// executed, and its effect then lasts as long as the lease or the place in the queue.
    pub(crate) fn doubt(&mut self, sent: Moment, ttl: Option<Duration>) {
        let end = sent.after(self.on_server_for(ttl).saturating_add(PLACE));
        self.on_server = match self.on_server {
            OnServer::InDoubt { until } => OnServer::InDoubt { until: until.max(end) },
            _ => OnServer::InDoubt { until: end },
        };
    }

    /// The outcome of a question is unknown, `now`. It may have been written long after it was created.
    pub(super) fn doubt_question(&mut self, open: &Open, now: Moment) {
        // It may have got the lock or a place, whichever ends first.
        let known_until = open.sent.after(self.on_server_for(open.ttl).min(PLACE));
        self.known_until = self.known_until.min(known_until);
        self.doubt(now, open.ttl);
    }

    /// Whether the server may have executed a question that got no answer, and have forgotten it at this time.
    pub(super) fn may_be_forgotten(&self, at: Moment) -> bool {
        self.known_until != Moment::NEVER && at >= self.known_until
    }

    /// The outcome of a renewal for `ttl` is unknown.
    pub(crate) fn doubt_renewal(&mut self, now: Moment, ttl: Option<Duration>) {
        let end = now.after(self.on_server_for(ttl));
        self.renewed_until = self.renewed_until.max(end);
    }

    /// How long a lease of `ttl` lasts on the server.
    fn on_server_for(&self, ttl: Option<Duration>) -> Duration {
        ttl.unwrap_or(UNLEASED).saturating_add(self.margin)
    }

    /// Its lease is to run on for a while after its release. A renewal that is executed behind the
    /// release finds nothing otherwise, but would lengthen such a lease.
    pub(crate) fn keep_until(&mut self, end: Moment) {
        // At its end it is released, and a renewal finds nothing after that. The process that gave the token away
        // may have left a renewal behind.
        let until = if self.adopted { end } else { self.renewed_until.min(end) };
        if until > Moment::START {
            self.doubt(until, Some(Duration::ZERO));
        }
    }

    /// Its only question had no effect.
    pub(crate) fn left_nothing(&mut self) {
        if self.on_server == OnServer::Asked {
            self.on_server = OnServer::Nothing;
        }
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self.on_server, OnServer::InDoubt { .. })
    }

    /// The server has forgotten the token.
    pub(crate) fn forgotten(&mut self) {
        self.on_server = OnServer::Nothing;
    }

    /// Another server may still have what was released.
    pub(crate) fn may_be_back(&mut self) {
        self.on_server = OnServer::Asked;
    }

    /// Consumes an attempt of which the server has nothing.
    pub(crate) fn ends(mut self) {
        self.forgotten();
    }

    /// Returns the token for the process that takes over the hold. Nothing is released. `at_most` is
    /// the lease of a cut that may still be executed.
    pub(crate) fn into_token(mut self, at_most: Option<Duration>, now: Moment) -> Token {
        let doubt = match self.on_server {
            OnServer::InDoubt { until } => until.since(now),
            OnServer::Asked | OnServer::Nothing => Duration::ZERO,
        };
        self.on_server = OnServer::Nothing;
        self.token.given_away(Unsettled { doubt, at_most, end: None })
    }
}

#[cfg(test)]
impl Drop for Attempt {
    /// In tests, dropping a token that the server may still have is a failure.
    fn drop(&mut self) {
        if self.on_server != OnServer::Nothing && !std::thread::panicking() {
            panic!(
                "the attempt {:?} was dropped and not released: {:?}",
                self.token, self.on_server
            );
        }
    }
}

/// The lease on the server, whichever caller of this process holds the lock.
#[derive(Debug)]
pub(super) struct Lease {
    /// The ttl that renewals ask for; `None` for a lock that never expires.
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
    pub(super) fn schedule<W>(&mut self, renews: bool, limit: Moment, env: &Env<'_, W>) {
        self.renew_at = match self.trusted(self.ttl) {
            Some(ttl) if renews && self.end < limit && !planted!(NotRenewed) => {
                lease::renewal(self.sent, ttl, env.spread, env.phase())
            }
            _ => Moment::NEVER,
        };
    }

    /// Whether the next demand would ask for the same lease. `last` is the demand of its last
    /// hold.
    pub(super) fn suits(&self, last: &Demand, next: &Demand) -> bool {
        next.terms.ttl.is_some()
            && next.terms.ttl == self.ttl
            && next.terms.renew
            && last.terms.renew
            && next.terms.max_hold >= last.terms.max_hold
            && next.terms.margin == last.terms.margin
            && next.terms.same == last.terms.same
            && next.adopts.is_none()
    }

    /// Whether more than half of it is left.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.ttl.is_some_and(|ttl| self.end.since(now) > ttl / 2)
    }
}
