//! Which options can't be right, alone or together. No later code checks them.

use std::time::Duration;

use crate::domain::config_error::check_rejoin;
use crate::domain::demand::Options;
use crate::domain::kind::Kind;
use crate::domain::token::MIN_TTL;
use crate::{ConfigError, LockError, Wait};

/// The longest margin: longer pauses need no cover.
const MAX_MARGIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The most permits of which each has a number, which the server keeps in a fraction of a millisecond.
const MOST_SLOTS: u32 = 500;

impl Options {
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
        if self.slotted {
            check_slotted(kind)?;
        }
        check_max_waiters(self.max_waiters)?;
        self.check_times(kind)?;
        if self.newest {
            self.check_newest(kind)?;
        }
        self.queue.map_or(Ok(()), |most| self.check_queue(most, kind))?;
        self.once.map_or(Ok(()), |period| self.check_once(period, kind))
    }

    /// Checks each time that was given.
    fn check_times(&self, kind: Kind) -> Result<(), LockError> {
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
            if !self.renew {
                return conflict("max_hold", "renew(false)", "the ttl ends that lock already");
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
                return conflict("min_hold", "a shorter max_hold", "lower min_hold");
            }
        }
        self.check_values(kind)?;
        Ok(())
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

    /// Checks that a quorum can offer it.
    pub(super) fn check_on_quorum(&self, kind: Kind, rejoin: Duration) -> Result<(), ConfigError> {
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

/// Checks that permits have numbers.
fn check_slotted(kind: Kind) -> Result<(), LockError> {
    let Some(limit) = kind.limit() else {
        let (option, needs, advice) = ("slotted", "permits", "only one of several has a number");
        return Err(ConfigError::Requires { option, needs, advice }.into());
    };
    if limit > MOST_SLOTS {
        let (option, advice) = ("permits with slots", "500 are the most");
        return Err(ConfigError::TooLarge { option, given: limit.into(), advice }.into());
    }
    Ok(())
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
