use std::time::Duration;

use redis_locks::LockRequest;

use super::kind::Kind;
use super::random::Random;
use super::{LONGEST_TTL, TTL, WAIT};

/// What a request asks for beside the lock. Each is now and then another than usual, so that all of them
/// meet.
#[expect(clippy::struct_excessive_bools, reason = "a list of options")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    ttl: Duration,
    waits: bool,
    fair: bool,
    renew: bool,
    linger: Option<Duration>,
    min_hold: Option<Duration>,
    max_hold: Option<Duration>,
    margin: Duration,
    max_waiters: Option<usize>,
}

impl Terms {
    /// For a series of calls of one lock, whose lease may linger between them.
    pub(crate) fn at_home(random: &mut Random) -> Self {
        Self {
            ttl: random.pick(&[TTL / 2, TTL, LONGEST_TTL]),
            waits: !random.once_in(6),
            fair: !random.once_in(8),
            renew: true,
            linger: Some(random.millis(1..4_000)),
            min_hold: None,
            max_hold: None,
            margin: Duration::ZERO,
            max_waiters: None,
        }
    }

    /// Leases linger where data are never lost: where they are, calls of a process that has an idle lease
    /// are let in beside others until its next renewal, with fences that were reserved before.
    pub(crate) fn pick(kind: Kind, is_volatile: bool, random: &mut Random) -> Self {
        let ttl = random.pick(&[TTL / 2, TTL, LONGEST_TTL]);
        let lingers = kind == Kind::Mutex && !is_volatile && random.once_in(3);
        let (min_hold, max_hold) = match random.below(24) {
            0 => (Some(ttl / 4), None),
            1 => (None, Some(random.millis(1..1_000))),
            _ => (None, None),
        };
        let (waits, fair, renew) = (!random.once_in(6), !random.once_in(8), !random.once_in(12));
        Self {
            ttl,
            waits,
            fair,
            renew,
            linger: lingers.then(|| random.millis(1..2_000)),
            min_hold,
            // A hold without renewal ends with its ttl, so the two are refused together.
            max_hold: max_hold.filter(|_| renew),
            margin: if random.once_in(4) { random.millis(1..1_000) } else { Duration::ZERO },
            max_waiters: random.once_in(10).then(|| 1 + random.below(3) as usize),
        }
    }

    /// The lease, where it is renewed.
    pub(crate) fn renewed(self) -> Option<Duration> {
        self.renew.then_some(self.ttl)
    }

    pub(crate) fn without_linger(self) -> Self {
        Self { linger: None, ..self }
    }

    pub(crate) fn of(self, request: LockRequest) -> LockRequest {
        let request = request.ttl(self.ttl).fair(self.fair).renew(self.renew);
        let request = if self.waits { request.wait(WAIT) } else { request.no_wait() };
        let request = self.linger.into_iter().fold(request, LockRequest::linger);
        let request = self.min_hold.into_iter().fold(request, LockRequest::min_hold);
        let request = self.max_waiters.into_iter().fold(request, LockRequest::max_waiters);
        let request = request.margin(self.margin);
        self.max_hold.into_iter().fold(request, LockRequest::max_hold)
    }
}

#[cfg(test)]
mod tests {
    use testbed::eventually;

    use super::*;
    use crate::soak::kind::every_kind;

    fn picked(kind: Kind, is_volatile: bool) -> impl Iterator<Item = Terms> {
        let mut random = Random::new(7);
        (0..1_000).map(move |_| Terms::pick(kind, is_volatile, &mut random))
    }

    #[test]
    fn whatever_is_picked_is_accepted() {
        let locks = redis_locks::Locks::in_memory();
        for kind in every_kind() {
            for terms in picked(kind, false) {
                let free = kind.request(&locks, &[0, 2]);
                let guard = terms.of(free).blocking_acquire().unwrap();
                // It may have ended by its own limit.
                let _ = guard.blocking_release();
                locks.blocking_force_release(kind.lock(0), "kept for a while").unwrap();
                locks.blocking_force_release(kind.lock(2), "kept for a while").unwrap();
            }
        }
    }

    #[test]
    fn leases_of_mutexes_linger_where_nothing_is_lost() {
        let linger = |kind, is_volatile| picked(kind, is_volatile).filter(|it| it.linger.is_some());
        assert!(linger(Kind::Mutex, false).count() > 100);
        assert_eq!(linger(Kind::Mutex, true).count() + linger(Kind::Write, false).count(), 0);
    }

    #[test]
    fn at_home_the_next_call_has_the_same_lease() {
        let (locks, mut random) = (redis_locks::Locks::in_memory(), Random::new(7));
        for key in 0..20 {
            let terms = Terms { linger: Some(WAIT * 10), ..Terms::at_home(&mut random) };
            let call = || {
                let request = terms.of(Kind::Mutex.request(&locks, &[key]));
                let token = request.blocking_acquire().unwrap().token().to_string();
                token.split('#').next().map(ToOwned::to_owned)
            };
            // The first lease does not linger: no message for the manager can arrive yet.
            let is_kept = || call() == call();
            eventually(WAIT * 10, "the next call has the same lease", is_kept);
        }
    }
}
