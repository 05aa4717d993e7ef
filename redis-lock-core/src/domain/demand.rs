//! What a request asks for: options that were checked, and the terms that the engine needs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;

use crate::domain::config_error::check_rejoin;
use crate::domain::key::Keys;
use crate::domain::kind::{Kind, LockSort, Title};
use crate::domain::label::Label;
use crate::domain::names::Names;
use crate::domain::token::MIN_TTL;
use crate::{ConfigError, LockError, Token};

/// The longest margin: longer pauses need no cover.
const MAX_MARGIN: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a hold is renewed by default. It ends the holds of leaked guards.
const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// As good as without an end, and short enough for any arithmetic.
pub(crate) const ENDLESS: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);

/// A hold that another guard gave away with `detach`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Adopted {
    pub(crate) token: Token,
    /// The number that its guard was given, where that is known.
    pub(crate) fence: Option<u64>,
}

/// The options of a request, as given.
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
    /// Whether calls that wait meanwhile get its value, and it gets that of the call that it waits for.
    pub(crate) share: bool,
    pub(crate) fenced: bool,
    pub(crate) fair: bool,
    pub(crate) reentrant: bool,
    pub(crate) repair_orphan: Option<Duration>,
    pub(crate) title: Title,
    /// The text that is added to the manager's label, free of control characters already.
    pub(crate) label: Option<Cow<'static, str>>,
    /// How long the lease stays after its last release while no other process wants the lock, if the
    /// request says so; zero gives it back at once.
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
    /// The current-thread runtime whose task asks, where that is one.
    pub(crate) runtime: Option<runtime::Id>,
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

    /// They are those of a leader, who goes on through outages and is not deposed after a time, unless
    /// the request says so.
    pub(crate) fn leads(&mut self) {
        self.outage = ENDLESS;
        if self.ttl.is_some() {
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

    fn lingers(&self) -> Option<Duration> {
        self.linger.filter(|linger| !linger.is_zero())
    }

    /// Checks the values and their combination.
    pub(crate) fn check(&self, kind: Kind) -> Result<(), LockError> {
        if let Some(ttl) = self.ttl {
            check_ttl("ttl", ttl)?;
        } else if !kind.is_pooled() {
            return conflict("never_expires", OTHER_KINDS, "give this lock a ttl");
        }
        if kind.limit() == Some(0) {
            let why = "could never be acquired; allow at least 1";
            return Err(ConfigError::Zero { option: "permits", why }.into());
        }
        if self.fenced && (kind == Kind::Read || kind.limit().is_some()) {
            let with = "readers and permits, of which several hold it at once";
            return conflict("fenced", with, "fence the writers, or use a mutex");
        }
        check_max_waiters(self.max_waiters)?;
        if let Wait::For(limit) = self.wait {
            check_millis("wait", limit, "use Wait::Forever to wait without a bound")?;
        }
        if let Some(limit) = self.max_hold {
            check_millis("max_hold", limit, "leave it out for the default of 24 hours")?;
            if limit.is_zero() {
                let why = "would never hold a lock; leave it out for the default of 24 hours";
                return Err(ConfigError::Zero { option: "max_hold", why }.into());
            }
            if self.ttl.is_none() {
                return needs_ttl("max_hold");
            }
        }
        if let Some(margin) = self.margin.filter(|margin| !margin.is_zero()) {
            check_margin(margin)?;
            if self.ttl.is_none() {
                return needs_ttl("margin");
            }
        }
        if let Some(grace) = self.repair_orphan {
            check_ttl("repair_orphan", grace)?;
        }
        if let Some(linger) = self.lingers() {
            check_millis("linger", linger, "shorten it")?;
            if !kind.is_pooled() {
                return conflict("linger", OTHER_KINDS, "leave linger out");
            }
            if self.ttl.is_none() {
                return needs_ttl("linger");
            }
        }
        if let Some(least) = self.min_hold {
            check_kept("min_hold", least)?;
            if !self.renew && self.ttl.is_some_and(|ttl| least > ttl) {
                let with = "a shorter ttl that is not renewed";
                return conflict("min_hold", with, "raise the ttl or allow renewal");
            }
            if self.max_hold.is_some_and(|limit| least > limit) {
                return conflict("min_hold", "a shorter max_hold", "lower it");
            }
        }
        self.check_values(kind)?;
        if self.newest {
            self.check_newest(kind)?;
        }
        self.queue.map_or(Ok(()), |most| self.check_queue(most, kind))?;
        self.once.map_or(Ok(()), |period| self.check_once(period, kind))
    }

    fn check_newest(&self, kind: Kind) -> Result<(), LockError> {
        let with = match kind {
            _ if self.wait == Wait::None => "no_wait",
            _ if self.min_hold.is_some() => "min_hold",
            _ if self.ttl.is_none() => "never_expires",
            _ if !self.renew => "renew(false)",
            _ if !self.fair => "fair(false)",
            _ if self.reentrant => "reentrant",
            _ if self.lingers().is_some() => "linger",
            _ if self.once.is_some() => "once",
            _ if self.queue.is_some() => "queue",
            _ if self.adopts.is_some() => "adopt",
            Kind::Mutex => return Ok(()),
            Kind::All { .. } => "several keys",
            Kind::Read => "readers",
            Kind::Write => "writers",
            Kind::Permit { .. } => "permits",
        };
        conflict("newest", with, "leave one of them out")
    }

    fn check_queue(&self, most: usize, kind: Kind) -> Result<(), LockError> {
        let (with, advice) = match kind {
            _ if most == 0 => ("zero", "use no_wait() to refuse every call that would wait"),
            _ if self.wait == Wait::None => ("no_wait", "leave `queue` out: no call waits"),
            _ if self.lingers().is_some() => ("linger", "leave one of them out"),
            Kind::All { .. } => ("several keys", "lock one key that stands for all of them"),
            _ => return Ok(()),
        };
        conflict("queue", with, advice)
    }

    fn check_once(&self, period: Duration, kind: Kind) -> Result<(), LockError> {
        check_kept("once", period)?;
        let (with, advice) = match self.min_hold {
            _ if period.is_zero() => ("a period of zero", "leave it out"),
            _ if kind != Kind::Mutex => ("a lock that is no mutex of one key", "use a mutex"),
            _ if self.ttl.is_none() => ("never_expires", "give the lock a ttl"),
            _ if self.reentrant => ("reentrant", "leave one of them out"),
            _ if self.lingers().is_some() => ("linger", "leave one of them out"),
            Some(least) if least > period => ("a min_hold that is longer", "shorten min_hold"),
            _ => return Ok(()),
        };
        conflict("once", with, advice)
    }

    fn check_values(&self, kind: Kind) -> Result<(), LockError> {
        if self.replay && self.once.is_none() {
            let advice = "say for how long the value is kept";
            return Err(ConfigError::Requires { option: "replay", needs: "`once`", advice }.into());
        }
        if self.same.is_some() && self.once.is_none() && !self.share {
            let (needs, advice) = ("`once` or `share`", "say what the calls are compared for");
            return Err(ConfigError::Requires { option: "same", needs, advice }.into());
        }
        if self.share { self.check_share(kind) } else { Ok(()) }
    }

    fn check_share(&self, kind: Kind) -> Result<(), LockError> {
        let (with, advice) = match self.once {
            _ if kind != Kind::Mutex => ("a lock that is no mutex of one key", "use a mutex"),
            Some(_) => ("once", "use `replay`, which serves those who wait as well"),
            _ if self.ttl.is_none() => ("never_expires", "give the lock a ttl"),
            _ if self.reentrant => ("reentrant", "leave one of them out"),
            _ if self.lingers().is_some() => ("linger", "leave one of them out"),
            _ if self.queue.is_some() => ("queue", "leave one of them out"),
            _ if self.newest => ("newest", "leave one of them out"),
            _ => return Ok(()),
        };
        conflict("share", with, advice)
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
        Ok(Demand { names, kind, title, terms, adopts, runtime: None, holding: None })
    }

    /// Checks that a quorum can offer it.
    fn check_on_quorum(&self, kind: Kind, rejoin: Duration) -> Result<(), ConfigError> {
        let no = |what, why| Err(ConfigError::NotOnQuorum { what, why });
        if kind.limit().is_some() {
            return no(
                "permits",
                "more holders than permits could each have a majority; use one server",
            );
        }
        let Some(ttl) = self.ttl else {
            return no(
                "locks that never expire",
                "a node that restarts forgets them; give it a ttl",
            );
        };
        if self.lingers().is_some() {
            return no("idle leases", "leave `linger` out, or use one server");
        }
        if self.queue.is_some() {
            return no("`queue`", "its nodes have no line in common; use one server");
        }
        if self.newest {
            return no("`newest`", "its nodes have no order of calls in common; use one server");
        }
        if self.share {
            return no("`share`", "a majority would have to keep the value; use one server");
        }
        if self.once.is_some() {
            return no("`once`", "a node that restarts forgets what was done; use one server");
        }
        check_rejoin(ttl, self.margin, rejoin)?;
        // Where it is not renewed any more, it is not brought back to nodes either.
        self.min_hold.map_or(Ok(()), |least| check_rejoin(least, None, rejoin))
    }

    fn terms(&self, common: &InCommon<'_>) -> LockTerms {
        let (ttl, timeout) = (self.ttl.map(whole_millis), common.timeout);
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
            fair: self.fair,
            repair_orphan: self.repair_orphan.map(whole_millis),
            label: Label::of(common.label, self.label.as_deref()).telling(self.share, self.same),
            linger: self.lingers().map(whole_millis),
            outage: self.outage,
            timeout: ttl.map_or(timeout, |ttl| timeout.min(command_limit(ttl))),
        }
    }
}

impl LockTerms {
    /// Whether each call counts by itself at the server, also beside others of its process.
    pub(crate) fn is_alone(&self) -> bool {
        self.queue.is_some() || self.newest
    }
}

impl Demand {
    /// What is locked, as the user named it; of several keys, all of them.
    pub(crate) fn key(&self) -> &str {
        self.names.user_key()
    }

    /// What its numbers are told apart by.
    pub(crate) fn sort(&self) -> LockSort {
        (self.kind, self.title)
    }
}

/// The time limit of a command that renews a lease of this length.
fn command_limit(ttl: Duration) -> Duration {
    (ttl / 6).clamp(Duration::from_millis(100), Duration::from_secs(2))
}

/// Checks the lease that an option asks for.
pub(crate) fn check_ttl(option: &'static str, ttl: Duration) -> Result<(), LockError> {
    if ttl < MIN_TTL {
        let (given, least, usual) = (ttl, MIN_TTL, "30 s");
        return Err(ConfigError::TooShort { option, given, least, usual }.into());
    }
    check_kept(option, ttl)
}

/// Checks the time for which a key outlasts its lease.
pub(crate) fn check_margin(margin: Duration) -> Result<(), LockError> {
    if margin > MAX_MARGIN {
        let (option, advice) = ("margin", "a day is the most");
        return Err(ConfigError::TooLong { option, given: margin, advice }.into());
    }
    Ok(())
}

/// Checks how many calls may wait.
pub(crate) fn check_max_waiters(most: Option<usize>) -> Result<(), LockError> {
    let why = "would refuse every call that waits; use no_wait() for that";
    match most {
        Some(0) => Err(ConfigError::Zero { option: "max_waiters", why }.into()),
        _ => Ok(()),
    }
}

/// Locks that are no mutex, as [`conflict`] names them.
const OTHER_KINDS: &str = "a lock that is no mutex";

fn conflict(
    option: &'static str,
    with: &'static str,
    advice: &'static str,
) -> Result<(), LockError> {
    Err(ConfigError::Conflict { option, with, advice }.into())
}

/// Refuses an option, or a method, for a lock that never expires.
pub(crate) fn needs_ttl<T>(option: &'static str) -> Result<T, LockError> {
    let (needs, advice) = ("a ttl", "a lock that never expires has none, so give it one");
    Err(ConfigError::Requires { option, needs, advice }.into())
}

/// Checks for how long a key is kept on the server.
fn check_kept(option: &'static str, given: Duration) -> Result<(), LockError> {
    // Moments and the server's times have an end. A time that is near it would lose its meaning: a key would
    // get no ttl, and a tombstone one that the server refuses.
    const MOST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
    if given > MOST {
        let advice = "100 years are the most";
        return Err(ConfigError::TooLong { option, given, advice }.into());
    }
    Ok(())
}

pub(crate) fn check_millis(
    option: &'static str,
    given: Duration,
    advice: &'static str,
) -> Result<(), LockError> {
    // The server counts milliseconds in 64 signed bits and adds the present time to them.
    const MOST: u128 = (i64::MAX / 4) as u128;
    if given.as_millis() > MOST {
        return Err(ConfigError::TooLong { option, given, advice }.into());
    }
    Ok(())
}

/// Rounds up: a lease must never be shorter than was asked for.
pub(crate) fn whole_millis(duration: Duration) -> Duration {
    let rest = duration.subsec_nanos() % 1_000_000;
    if rest == 0 {
        return duration;
    }
    // `check_millis` refuses what overflows here.
    duration.saturating_add(Duration::from_nanos(u64::from(1_000_000 - rest)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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
            Options { min_hold: Some(second * 40), renew: false, ..options() },
            Options { min_hold: Some(second * 4), max_hold: Some(second), ..options() },
            Options { repair_orphan: Some(Duration::ZERO), ..options() },
        ] {
            assert!(wrong.check(Kind::Mutex).is_err(), "{wrong:?}");
        }
        let wrong = Options { repair_orphan: Some(Duration::ZERO), ..options() };
        let said = wrong.check(Kind::Mutex).unwrap_err().to_string();
        assert!(
            said.contains("a repair_orphan of 0ns is too short; the least is 100ms, 30 s is usual"),
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
    fn c14_a_short_lease_gets_a_short_patience() {
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
    /// The fingerprint of what the call was given; tokens have it.
    pub(crate) same: Option<u128>,
    /// Whether values are shared with calls that wait; tokens say so.
    pub(crate) share: bool,
    pub(crate) fenced: bool,
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
