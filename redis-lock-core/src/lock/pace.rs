//! How often and how long: the times that the machine of a lock goes by.

use std::time::Duration;

use super::Env;
use crate::Token;
use crate::domain::clock::Moment;
use crate::domain::error::FaultClass;
use crate::store::Blocker;

/// How long a place in the server's queue lasts when nobody asks again.
pub(crate) const PLACE: Duration = Duration::from_secs(5);

/// How long the release of a lock without a lease is tried.
pub(crate) const UNLEASED: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time between two looks at a lock that is waited for: what a lost message costs.
const LOOK: Duration = Duration::from_secs(1);

/// The same while many are before us in the queue. It is no longer than a claim lasts, so that a lost
/// message costs nobody a turn.
const LOOK_FROM_AFAR: Duration = LOOK;

/// Looks of this much time are taken together, some 67 ms as a power of two of nanoseconds.
const TOGETHER: u32 = 26;

/// The same where the holder is no client of ours and notifies nobody when it releases.
const LOOK_AT_FOREIGNER: Duration = Duration::from_millis(250);

/// The shortest time between two looks while the same holder keeps renewing.
const LEAST: Duration = Duration::from_millis(350);

/// The shortest time between two questions that messages cause: whoever may publish may lie.
const HINTS: Duration = Duration::from_millis(10);

/// How long to wait for keys that are on their way to another node, at the most, at first.
pub(super) const MOVE: Duration = Duration::from_millis(50);

/// So many tries are that quick.
const QUICK: u32 = 16;

/// How long a process may hand the lock among its own tasks before it asks whether another process
/// waits. A round trip in this much time is what the question costs.
const TURN: Duration = Duration::from_millis(10);

/// The same once it is known that one waits.
pub(super) const SHORT_TURN: Duration = Duration::from_millis(1);

/// How often it may do so in this time: a bound that no clock can lift.
const PASSES: u32 = 8192;

/// Follows hints, but not every one of a flood.
#[derive(Debug, Default)]
pub(super) struct HintThrottle(Option<Moment>);

impl HintThrottle {
    /// When to follow a hint that comes now: at once, or when the last one is long enough ago.
    pub(super) fn follow_at(&self, now: Moment) -> Moment {
        self.0.map_or(now, |last| last.after(HINTS)).max(now)
    }

    pub(super) fn followed(&mut self, now: Moment) {
        self.0 = Some(now);
    }
}

/// How long one process goes on by itself.
#[derive(Debug)]
pub(super) struct Turn {
    ends: Moment,
    passes: u32,
}

impl Turn {
    pub(super) fn begin(now: Moment, waited_for: bool) -> Self {
        Self { ends: now.after(if waited_for { SHORT_TURN } else { TURN }), passes: PASSES }
    }

    pub(super) fn runs(&self, now: Moment) -> bool {
        now < self.ends && self.passes > 0
    }

    pub(super) fn pass(&mut self) {
        self.passes = self.passes.saturating_sub(1);
    }

    /// Another process waits: it is to be served soon.
    pub(super) fn shorten(&mut self, now: Moment) {
        self.ends = self.ends.min(now.after(SHORT_TURN));
    }
}

/// When to look again at a lock that `blocker` has, after `looks` looks that found the same holder.
pub(super) fn look_at(blocker: &Blocker, looks: u32, env: &Env<'_>) -> Moment {
    let spread = u32::from(env.spread);
    let jitter = Duration::from_millis(1) + Duration::from_micros(40) * spread;
    let of_us = |value: &str| Token::from_wire(value).manager().is_some();
    let ours = blocker.value.as_deref().is_none_or(of_us);
    let least = if blocker.queued && looks > 1 { LEAST } else { Duration::ZERO };
    if blocker.is_far && env.hints {
        let wait = LOOK_FROM_AFAR * 3 / 4 + LOOK_FROM_AFAR * spread / 1_024;
        return match blocker.ttl {
            // Those before us may be gone with the holder.
            Some(ttl) if ttl + jitter < wait => env.now.after((ttl + jitter).max(least)),
            _ => env.now.after(wait).at_or_before(TOGETHER, env.phase()),
        };
    }
    let most = match (blocker.queued && env.hints, ours) {
        // Nobody will notify us: look ever more rarely, from 20 ms to half a second.
        (false, _) => Duration::from_millis(20) * (1 << looks.min(5)),
        (true, true) => LOOK,
        (true, false) => LOOK_AT_FOREIGNER,
    };
    let most = most * 3 / 4 + most * spread / 512;
    let wait = blocker.ttl.map_or(most, |ttl| most.min((ttl + jitter).max(least)));
    env.now.after(wait)
}

/// When to ask again after so many failures in a row.
pub(super) fn retry_at(class: FaultClass, failures: u32, env: &Env<'_>) -> Moment {
    let pause = match class.is_passing() {
        // A slot moves fast, or its move was given up, and then nobody knows when it goes on.
        true => MOVE * (1 << (failures / QUICK).min(3)),
        false => Duration::from_millis(25) * (1 << failures.min(5)),
    };
    env.now.after(pause / 2 + pause * u32::from(env.spread) / 512)
}
