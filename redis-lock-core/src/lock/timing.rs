//! The intervals and time limits of a lock's machine.

use std::sync::Arc;
use std::time::Duration;

use super::{Env, LineStanding, Machine, Stage, WaitingCall};
use crate::domain::clock::Moment;
use crate::domain::demand::ENDLESS;
use crate::domain::fault::FaultClass;
use crate::domain::mark::Mark;
use crate::observe::Observation;
use crate::store::{Blocker, CLAIM};
use crate::{LockError, Token};

/// How long the release of a lock without a lease is repeated.
pub(crate) const UNLEASED: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time between two looks of a waiter, which is how long a lost message can delay it. It must
/// not be longer than a claim lasts, or a lost message could cost a waiter its turn.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

const _: () = assert!(LOOK_INTERVAL.as_nanos() <= CLAIM.as_nanos());

/// The longest time between two looks when the holder is another program, which sends no message
/// when it releases.
const LOOK_AT_FOREIGNER: Duration = Duration::from_millis(250);

/// The shortest time between two looks while the same holder keeps renewing.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(350);

/// The shortest time between two questions that messages cause, because messages may be forged.
const HINT_INTERVAL: Duration = Duration::from_millis(10);

/// The longest wait, at first, for a slot that is being moved to another node.
pub(super) const MAX_MOVE_WAIT: Duration = Duration::from_millis(50);

/// How many tries come that quickly.
const QUICK: u32 = 16;

/// How long a process may pass the lock among its own tasks before it asks whether another process
/// waits. The question costs one round trip in this time.
const TURN: Duration = Duration::from_millis(10);

/// The same once it is known that another process waits.
pub(super) const SHORT_TURN: Duration = Duration::from_millis(1);

/// How often it may pass the lock on in this time, even if the clock stands still.
const MAX_PASSES: u32 = 8192;

/// Limits how often hints are followed.
#[derive(Debug, Default)]
pub(super) struct HintThrottle {
    not_before: Moment,
}

impl HintThrottle {
    /// When to follow a hint that arrives now: at once, unless the last one was followed a moment
    /// ago.
    pub(super) fn follow_at(&self, now: Moment) -> Moment {
        now.max(self.not_before)
    }

    pub(super) fn followed(&mut self, now: Moment) {
        self.not_before = now.after(HINT_INTERVAL);
    }
}

/// The turn of one process: how long it may pass the lock among its own tasks.
#[derive(Debug)]
pub(super) struct Turn {
    ends: Moment,
    passes: u32,
}

impl Turn {
    pub(super) fn begin(now: Moment, waited_for: bool) -> Self {
        Self { ends: now.after(if waited_for { SHORT_TURN } else { TURN }), passes: MAX_PASSES }
    }

    pub(super) fn runs(&self, now: Moment) -> bool {
        now < self.ends && self.passes > 0
    }

    pub(super) fn pass(&mut self) {
        self.passes = self.passes.saturating_sub(1);
    }

    /// Another process waits, so the turn ends soon.
    pub(super) fn shorten(&mut self, now: Moment) {
        self.ends = self.ends.min(now.after(SHORT_TURN));
    }
}

/// When to look again at a lock that `blocker` has, after `looks` looks found the same holder.
pub(super) fn look_at<W>(blocker: &Blocker, looks: u32, env: &Env<'_, W>) -> Moment {
    let spread = u32::from(env.spread);
    let hears = blocker.queued && env.hints;
    // At the end of the holder's lease those in the queue look at once. The others may be many, so they
    // come further apart.
    let spread_out = Duration::from_micros(if blocker.queued { 2 } else { 40 }) * spread;
    let least = if blocker.queued && looks > 1 { MIN_LOOK_INTERVAL } else { Duration::ZERO };
    let at_end = |ttl: Duration| (ttl + Duration::from_millis(1) + spread_out).max(least);
    let of_us =
        |value: &str| Token::from_wire(value).manager().is_some() || Mark::read(value).is_some();
    let ours = blocker.value.as_deref().is_none_or(of_us);
    let wait = match (hears, ours) {
        // No message will come, so look at growing intervals, from 20 ms to half a second.
        (false, _) => spread_over(Duration::from_millis(20) * (1 << looks.min(5)), spread),
        (true, false) => spread_over(LOOK_AT_FOREIGNER, spread),
        (true, true) => LOOK_INTERVAL * 3 / 4 + LOOK_INTERVAL * spread / 1_024,
    };
    match blocker.ttl.map(at_end) {
        // The waiters ahead may be gone as well when the holder's lease ends.
        Some(end) if end < wait => env.now.after(end),
        _ => env.now.after(wait),
    }
}

/// Three quarters to five quarters of the interval.
fn spread_over(interval: Duration, spread: u32) -> Duration {
    interval * 3 / 4 + interval * spread / 512
}

/// When to ask again after this many consecutive failures.
pub(super) fn retry_at<W>(class: FaultClass, failures: u32, env: &Env<'_, W>) -> Moment {
    let pause = match class.is_moving() {
        // A slot moves fast, or its move was given up, and then it goes on at an unknown time.
        true => MAX_MOVE_WAIT * (1 << (failures / QUICK).min(3)),
        false => Duration::from_millis(25) * (1 << failures.min(5)),
    };
    env.now.after(pause / 2 + pause * u32::from(env.spread) / 512)
}

/// How long the holder has to answer, or three round trips if those take longer.
pub(super) const ASK_WAIT: Duration = Duration::from_millis(50);

/// Whether a holder that may be idle was asked to hand over to callers that do not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandOverRequest {
    Not,
    /// It was asked, and its answer is awaited until the time of the next look.
    Waits,
    /// It has answered, or its time is over: the next look decides.
    Over {
        answered: bool,
    },
    /// That look has found that the lock is in use.
    Refused,
}

/// How long a call waits before subscribers get an event. They get another after twice that time,
/// and so on.
const LONG: Duration = Duration::from_secs(30);

impl<W> Machine<W> {
    /// When to report that the first waiter has waited long. While this process has the lock, that
    /// counts from the grant. A queue in which each waiter gets its turn causes at most one report in
    /// that time.
    pub(super) fn long_wait_due(&self) -> Moment {
        // Those who want to lead wait through outages, and have nothing else to do.
        let can_be_long = |first: &&WaitingCall<W>| first.demand.terms.outage < ENDLESS;
        let Some(first) = self.waiters.first().filter(can_be_long) else { return Moment::NEVER };
        let since = match &self.stage {
            Stage::Held(held) => first.asked.max(held.hold.since),
            _ => first.asked,
        };
        let next = since.after(LONG.max(self.warned.since(since).saturating_mul(2)));
        next.max(self.warned.after(LONG))
    }

    pub(super) fn tell_long_wait(&mut self, env: &mut Env<'_, W>) {
        if self.long_wait_due() > env.now {
            return;
        }
        self.warned = env.now;
        let Some(first) = self.waiters.first() else { return };
        // That a server fails is told of by itself.
        if let error @ LockError::Busy { .. } = self.refusal(first, env.now)
            && self.standing() != LineStanding::HeldBack
        {
            let demand = Arc::clone(&first.demand);
            env.observe(Observation::LongWait(demand, Box::new(error)));
        }
    }
}
