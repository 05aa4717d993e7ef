//! What a request asks for: options that were checked, and the terms that the engine needs.

use std::borrow::Cow;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime;

use crate::domain::key::Keys;
use crate::domain::kind::{Kind, LockSort, Title};
use crate::domain::label::{Label, SecondCall};
use crate::domain::lease::whole_millis;
use crate::domain::names::Names;
use crate::{LockError, Token};

/// How long a hold is renewed by default. It ends the holds of leaked guards.
const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// As good as without an end, and short enough for any arithmetic.
pub(crate) const ENDLESS: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);

/// A hold that another guard gave away with `detach`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Adopted {
    pub(crate) token: Token,
    /// The number that its guard was given, if it is known.
    pub(crate) fence: Option<u64>,
}

/// The options of a request, as given.
#[expect(clippy::struct_excessive_bools, reason = "a list of options")]
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: Option<Duration>,
    pub(crate) margin: Option<Duration>,
    pub(crate) wait: Wait,
    pub(crate) max_waiters: Option<usize>,
    pub(crate) queue: Option<usize>,
    pub(crate) newest: bool,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) once: Option<Duration>,
    /// Whether the value of the call that did it is wanted.
    pub(crate) replay: bool,
    /// The fingerprint of what the call was given.
    pub(crate) same: Option<u128>,
    /// Whether waiting calls get its value, and it gets the value of the call that it waits for.
    pub(crate) share: bool,
    pub(crate) fenced: bool,
    /// Whether its permit gets a number.
    pub(crate) slotted: bool,
    pub(crate) fair: bool,
    pub(crate) reentrant: bool,
    pub(crate) repair_orphan: Option<Duration>,
    pub(crate) title: Title,
    /// The text that is added to the manager's label, free of control characters already.
    pub(crate) label: Option<Cow<'static, str>>,
    /// How long the lease stays after its last release while no other process wants the lock, if the
    /// request sets it; zero gives it back at once.
    pub(crate) linger: Option<Duration>,
    /// How long an acquisition waits for a server that can't be used.
    pub(crate) outage: Duration,
    /// The token that another process gave away, and which has the lock.
    pub(crate) adopts: Option<Box<Adopted>>,
}

/// What the demands of one manager have in common.
#[derive(Debug)]
pub(crate) struct InCommon<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) label: &'a Arc<str>,
    /// How long a command may take.
    pub(crate) timeout: Duration,
    /// Of a quorum, how long a node that has started does not vote.
    pub(crate) rejoin: Option<Duration>,
}

/// A checked request for one key: what the engine works with.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) names: Names,
    pub(crate) kind: Kind,
    pub(crate) title: Title,
    pub(crate) terms: LockTerms,
    /// The token that another process gave away, and which has the lock.
    pub(crate) adopts: Option<Box<Adopted>>,
    /// The current-thread runtime whose task asks, if it is one.
    pub(crate) runtime: Option<runtime::Id>,
    /// The thread that asks.
    pub(crate) thread: ThreadId,
    /// What the code that asks holds, as far as that is known, in words.
    pub(crate) holding: Option<Box<str>>,
}

impl Options {
    /// The options of a request that sets none.
    pub(crate) fn unset(ttl: Duration, wait: Wait, outage: Duration) -> Self {
        Self {
            ttl: Some(ttl),
            margin: None,
            wait,
            max_waiters: None,
            queue: None,
            newest: false,
            renew: true,
            max_hold: None,
            min_hold: None,
            once: None,
            replay: false,
            same: None,
            share: false,
            fenced: false,
            slotted: false,
            fair: true,
            reentrant: false,
            repair_orphan: None,
            title: Title::default(),
            label: None,
            linger: None,
            outage,
            adopts: None,
        }
    }

    /// They are those of a leader, which survives outages and is not deposed after a time, unless the
    /// request sets a limit.
    pub(crate) fn leads(&mut self) {
        self.outage = ENDLESS;
        if self.ttl.is_some() && self.renew {
            self.max_hold.get_or_insert(ENDLESS);
        }
    }

    /// Lengthens a limit of the wait that is shorter than this.
    pub(crate) fn waits_at_least(&mut self, least: Duration) {
        match self.wait {
            Wait::Forever => {}
            Wait::None => self.wait = Wait::For(least),
            Wait::For(limit) => self.wait = Wait::For(limit.max(least)),
        }
    }

    pub(super) fn lingers(&self) -> Option<Duration> {
        self.linger.filter(|linger| !linger.is_zero())
    }

    pub(crate) fn demand(
        &self,
        keys: Keys,
        kind: Kind,
        common: &InCommon<'_>,
    ) -> Result<Demand, LockError> {
        self.check(kind)?;
        common.rejoin.map_or(Ok(()), |rejoin| self.check_on_quorum(kind, rejoin))?;
        let names = keys.named(common.namespace)?;
        let terms = self.terms(common);
        let (title, adopts) = (self.title, self.adopts.clone());
        let thread = thread::current().id();
        Ok(Demand { names, kind, title, terms, adopts, runtime: None, thread, holding: None })
    }

    fn terms(&self, common: &InCommon<'_>) -> LockTerms {
        let ttl = self.ttl.map(whole_millis);
        let second_call = SecondCall::of(self.queue, self.newest, self.share);
        LockTerms {
            ttl,
            margin: self.margin.map_or(Duration::ZERO, whole_millis),
            wait: self.wait,
            max_waiters: self.max_waiters,
            queue: self.queue,
            newest: self.newest,
            renew: self.renew && ttl.is_some(),
            max_hold: self.max_hold.unwrap_or(DEFAULT_MAX_HOLD),
            min_hold: self.min_hold,
            once: self.once,
            same: self.same,
            share: self.share,
            fenced: self.fenced,
            slotted: self.slotted,
            fair: self.fair,
            repair_orphan: self.repair_orphan.map(whole_millis),
            label: Label::of(common.label, self.label.as_deref()).telling(second_call, self.same),
            linger: self.lingers().map(whole_millis),
            outage: self.outage,
            timeout: common.timeout,
        }
    }
}

impl LockTerms {
    /// Whether each call counts separately at the server, even beside other calls of its
    /// process.
    pub(crate) fn is_alone(&self) -> bool {
        self.queue.is_some() || self.newest
    }

    /// How long a renewal may take: less where the lease would end before the next try.
    pub(crate) fn renewal_timeout(&self) -> Duration {
        self.ttl.map_or(self.timeout, |ttl| self.timeout.min(command_limit(ttl)))
    }
}

impl Demand {
    /// What is locked, as the user named it; of several keys, all of them.
    pub(crate) fn key(&self) -> &str {
        self.names.user_key()
    }

    /// The labels of its numbers.
    pub(crate) fn sort(&self) -> LockSort {
        (self.kind, self.title)
    }
}

/// The time limit of a command that renews a lease of this length.
fn command_limit(ttl: Duration) -> Duration {
    (ttl / 6).clamp(Duration::from_millis(100), Duration::from_secs(2))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::checks::needs_ttl;

    fn options() -> Options {
        Options::unset(Duration::from_secs(30), Wait::Forever, Duration::from_secs(10))
    }

    /// A mutex with a lease of 30 seconds, as the state machine's tests want it.
    pub(crate) fn demand(key: &str) -> Demand {
        demand_of(&options(), key)
    }

    fn demand_of(options: &Options, key: &str) -> Demand {
        let label = &"".into();
        let timeout = Duration::from_secs(2);
        let common = InCommon { namespace: "lock", label, timeout, rejoin: None };
        options.demand(Keys::One(key.into()), Kind::Mutex, &common).unwrap()
    }

    impl Demand {
        /// The same on other terms.
        pub(crate) fn with(mut self, change: impl FnOnce(&mut LockTerms)) -> Self {
            change(&mut self.terms);
            self
        }
    }

    #[test]
    fn k1_leases_are_checked_and_rounded_up() {
        for bad in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(99), Duration::MAX]
        {
            let wrong = Options { ttl: Some(bad), ..options() };
            assert!(
                matches!(wrong.check(Kind::Mutex), Err(LockError::InvalidConfig { .. })),
                "{bad:?}"
            );
        }
        assert_eq!(whole_millis(Duration::from_nanos(100_000_001)), Duration::from_millis(101));
        assert_eq!(whole_millis(Duration::from_millis(100)), Duration::from_millis(100));
    }

    #[test]
    fn waits_without_an_end_are_said_otherwise() {
        let wrong = Options { wait: Wait::For(Duration::from_millis(u64::MAX)), ..options() };
        assert!(wrong.check(Kind::Mutex).is_err());
        let wrong = Options { wait: Wait::For(Duration::from_secs(u64::MAX)), ..options() };
        assert!(wrong.check(Kind::Mutex).is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let second = Duration::from_secs(1);
        for wrong in [
            Options { max_hold: Some(Duration::ZERO), ..options() },
            Options { ttl: None, max_hold: Some(second), ..options() },
            Options { renew: false, max_hold: Some(second), ..options() },
            Options { min_hold: Some(second * 40), renew: false, ..options() },
            Options { min_hold: Some(second * 4), max_hold: Some(second), ..options() },
            Options { repair_orphan: Some(Duration::ZERO), ..options() },
        ] {
            assert!(wrong.check(Kind::Mutex).is_err(), "{wrong:?}");
        }
        let wrong = Options { repair_orphan: Some(Duration::ZERO), ..options() };
        let said = wrong.check(Kind::Mutex).unwrap_err().to_string();
        assert!(
            said.contains(
                "a repair_orphan of 0ns is too short; the minimum is 100ms, and 30 s is usual"
            ),
            "{said}"
        );
        assert!(Options { ttl: None, ..options() }.check(Kind::Read).is_err());
        assert!(options().check(Kind::Permit { limit: 0 }).is_err());
    }

    #[test]
    fn a_leader_is_deposed_after_a_time_only_where_the_request_says_so() {
        let led = |options: Options| {
            let mut options = options;
            options.leads();
            assert_eq!(options.check(Kind::Mutex), Ok(()));
            demand_of(&options, "k").terms.max_hold
        };
        assert!(led(options()) > Duration::from_secs(100 * 365 * 24 * 60 * 60));
        let hour = Duration::from_secs(60 * 60);
        assert_eq!(led(Options { max_hold: Some(hour), ..options() }), hour);
        led(Options { ttl: None, ..options() });
        led(Options { renew: false, ..options() });
    }

    #[test]
    fn only_the_lease_of_a_mutex_lingers() {
        let lingering = Options { linger: Some(Duration::from_secs(1)), ..options() };
        assert!(lingering.check(Kind::Mutex).is_ok());
        assert!(lingering.check(Kind::Read).is_err());
        let linger = |options: &Options| demand_of(options, "k").terms.linger;
        assert_eq!(linger(&lingering), Some(Duration::from_secs(1)));
        assert_eq!(linger(&Options { linger: Some(Duration::ZERO), ..options() }), None);
        let endless = Options { ttl: None, ..lingering }.check(Kind::Mutex);
        assert_eq!(endless, needs_ttl("linger"));
    }

    #[test]
    fn c14_only_the_renewals_of_a_short_lease_get_a_short_patience() {
        let short = Options { ttl: Some(Duration::from_millis(400)), ..options() };
        let terms = demand_of(&short, "k").terms;
        assert_eq!(terms.timeout, Duration::from_secs(2));
        assert_eq!(terms.renewal_timeout(), Duration::from_millis(100));
        assert_eq!(command_limit(Duration::from_millis(400)), Duration::from_millis(100));
        assert_eq!(command_limit(Duration::from_secs(6)), Duration::from_secs(1));
        assert_eq!(command_limit(Duration::from_secs(60)), Duration::from_secs(2));
    }
}

/// How long an acquisition waits for a lock that is busy.
///
/// ```
/// use std::time::Duration;
/// use redis_locks::Wait;
/// assert_eq!(Wait::from(Duration::from_secs(5)), Wait::For(Duration::from_secs(5)));
/// assert_eq!(Wait::from(Duration::ZERO), Wait::None);
/// assert_eq!(Wait::default(), Wait::Forever);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::exhaustive_enums, reason = "there is no fourth way to wait")]
pub enum Wait {
    /// Until the lock is acquired. The default.
    #[default]
    Forever,
    /// Not at all: one attempt.
    None,
    /// At most this long; [`LockError::Busy`](crate::LockError::Busy) after that.
    For(Duration),
}

impl From<Duration> for Wait {
    fn from(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::For(limit) }
    }
}

/// The checked options of a request, whatever its key.
#[expect(clippy::struct_excessive_bools, reason = "a list of options")]
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LockTerms {
    /// In whole milliseconds; `None` never expires.
    pub(crate) ttl: Option<Duration>,
    /// How much longer the server keeps the key than the guard believes in its lease.
    pub(crate) margin: Duration,
    pub(crate) wait: Wait,
    /// How many calls of the manager may wait for the key.
    pub(crate) max_waiters: Option<usize>,
    /// How many calls may wait in the server's line.
    pub(crate) queue: Option<usize>,
    /// Whether it ends older calls, and is ended by newer ones.
    pub(crate) newest: bool,
    pub(crate) renew: bool,
    pub(crate) max_hold: Duration,
    pub(crate) min_hold: Option<Duration>,
    /// For how long after the acquisition it stays known that what the lock was held for was done.
    pub(crate) once: Option<Duration>,
    /// The fingerprint of the call's input, which its token contains.
    pub(crate) same: Option<u128>,
    /// Whether values are shared with waiting calls. The token contains this, too.
    pub(crate) share: bool,
    pub(crate) fenced: bool,
    /// Whether its permit gets a number.
    pub(crate) slotted: bool,
    pub(crate) fair: bool,
    pub(crate) repair_orphan: Option<Duration>,
    pub(crate) label: Label,
    /// How long one command may take.
    pub(crate) timeout: Duration,
    /// In whole milliseconds; with `None` the last release gives the lease back.
    pub(crate) linger: Option<Duration>,
    /// How long an acquisition waits for a server that can't be used, whatever its wait.
    pub(crate) outage: Duration,
}
