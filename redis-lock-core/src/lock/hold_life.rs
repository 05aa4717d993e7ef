//! Whether a hold is held, and until when, in one word.
//!
//! Its guard, the engine and the guards that joined it look at a hold several times for each lock. A word that is
//! compared and exchanged costs a fraction of a mutex. No thread that is missing in a forked child can
//! keep it locked there.

use crate::LockState;
use crate::domain::clock::Moment;
use crate::sync::{AtomicU64, Ordering};

/// Where in its life a hold is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Held,
    Uncertain,
    Released,
    /// Its lease ran out.
    Expired,
    /// The longest time that it may last ran out.
    Limited,
    /// Lost for a reason that is kept beside it.
    Lost,
}

impl Phase {
    /// By their numbers in a word.
    const IN_ORDER: [Self; 6] =
        [Self::Held, Self::Uncertain, Self::Released, Self::Expired, Self::Limited, Self::Lost];
}

/// The phase of a hold, and when its lease ends by this side's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HoldLife {
    pub(super) phase: Phase,
    pub(super) deadline: Moment,
}

/// The lowest bits are for the phase. The others count nanoseconds for 73 years. Any later moment counts
/// as never.
const PHASE_BITS: u32 = 3;

const NEVER: u64 = u64::MAX >> PHASE_BITS;

impl HoldLife {
    /// Whether the lock counts as held, as far as the time is not looked at.
    pub(super) fn runs(self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Uncertain)
    }

    /// The same at `now`: a lease that has run out by then is lost.
    pub(super) fn at(self, now: Moment, limit: Moment) -> Self {
        if !self.runs() || now < self.deadline {
            return self;
        }
        let phase = if now >= limit { Phase::Limited } else { Phase::Expired };
        Self { phase, ..self }
    }

    pub(super) fn state(self) -> LockState {
        match self.phase {
            Phase::Held => LockState::Held,
            Phase::Uncertain => LockState::Uncertain,
            Phase::Released => LockState::Released,
            Phase::Expired | Phase::Limited | Phase::Lost => LockState::Lost,
        }
    }

    fn to_word(self) -> u64 {
        self.deadline.as_nanos().min(NEVER) << PHASE_BITS | self.phase as u64
    }

    fn from_word(word: u64) -> Self {
        let index = (word & ((1 << PHASE_BITS) - 1)) as usize;
        let phase = Phase::IN_ORDER.get(index).copied().unwrap_or(Phase::Lost);
        let nanos = word >> PHASE_BITS;
        let deadline = if nanos == NEVER { Moment::NEVER } else { Moment::from_nanos(nanos) };
        Self { phase, deadline }
    }
}

/// The life of a hold, which several threads look at and change.
#[derive(Debug)]
pub(super) struct SharedLife(AtomicU64);

impl SharedLife {
    pub(super) fn until(deadline: Moment) -> Self {
        Self(AtomicU64::new(HoldLife { phase: Phase::Held, deadline }.to_word()))
    }

    pub(super) fn get(&self) -> HoldLife {
        HoldLife::from_word(self.0.load(Ordering::Acquire))
    }

    /// Changes it in one step. Returns what it was before and what it is now.
    pub(super) fn change(&self, change: impl Fn(HoldLife) -> HoldLife) -> (HoldLife, HoldLife) {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let before = HoldLife::from_word(word);
            let after = change(before);
            if after == before {
                return (before, before);
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.0.compare_exchange_weak(word, after.to_word(), success, failure) {
                Ok(_) => return (before, after),
                Err(other) => word = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_word_says_what_was_put_into_it() {
        let deadlines = [Moment::START, Moment::at_millis(1_000), Moment::now(), Moment::NEVER];
        for deadline in deadlines {
            for phase in [
                Phase::Held,
                Phase::Uncertain,
                Phase::Released,
                Phase::Expired,
                Phase::Limited,
                Phase::Lost,
            ] {
                let life = HoldLife { phase, deadline };
                assert_eq!(HoldLife::from_word(life.to_word()), life);
            }
        }
        let far = Moment::now().after(Duration::from_secs(100 * 365 * 24 * 60 * 60));
        let life = HoldLife { phase: Phase::Held, deadline: far };
        assert_eq!(HoldLife::from_word(life.to_word()).deadline, Moment::NEVER);
    }

    #[test]
    fn c5_of_a_release_and_the_end_of_the_lease_only_one_counts() {
        for _ in 0..200 {
            let life = SharedLife::until(Moment::at_millis(1));
            let limit = Moment::NEVER;
            let (released, latched) = std::thread::scope(|scope| {
                let release = || {
                    let (before, _) = life.change(|life| match life.runs() {
                        true => HoldLife { phase: Phase::Released, ..life },
                        false => life,
                    });
                    before.runs()
                };
                let latch = || life.change(|life| life.at(Moment::at_millis(2), limit)).0.runs();
                let other = scope.spawn(release);
                let latched = latch();
                (other.join().unwrap(), latched)
            });
            assert!(released != latched, "one of them has ended it, the other found it ended");
        }
    }
}
