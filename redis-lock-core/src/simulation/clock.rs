//! Time: the true one, and that of each machine, whose clock runs at a rate of its own.

use std::cell::Cell;

use crate::domain::clock::Moment;
use crate::domain::env::simulated;

pub(super) const MILLI: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// The true time since the history began, in nanoseconds.
pub(super) fn now() -> u64 {
    NOW.get()
}

pub(super) fn set(now: u64) {
    NOW.set(now);
}

/// What clocks of servers show when a history begins.
pub(super) const START: u64 = 1_000_000 * SECOND;

/// The true time at which the clock of a server shows this that is so far ahead.
pub(super) fn true_time(shown: Moment, ahead: i64) -> u64 {
    if shown == Moment::NEVER {
        return u64::MAX;
    }
    shown.as_nanos().saturating_add_signed(-ahead).saturating_sub(START)
}

/// The clock of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessClock {
    /// The time that it showed when the history began.
    pub(super) start: u64,
    /// How much faster than true time it runs, in millionths.
    pub(super) rate: i64,
    pub(super) process: u32,
    /// From when until when it stands still.
    stands: (u64, u64),
}

impl ProcessClock {
    pub(super) fn new(start: u64, rate: i64, process: u32) -> Self {
        Self { start, rate, process, stands: (u64::MAX, u64::MAX) }
    }

    /// It stands still once. Returns whether this is the first time.
    pub(super) fn stand_still(&mut self, from: u64, until: u64) -> bool {
        let is_first = self.stands.0 == u64::MAX;
        if is_first {
            self.stands = (from, until);
        }
        is_first
    }

    /// What it shows when it stands still, and for how long, if that has begun by this time.
    pub(super) fn stood_still(&self, by: u64) -> Option<(Moment, u64)> {
        let (from, until) = self.stands;
        (from <= by).then(|| (Moment::from_nanos(self.at(from)), until - from))
    }

    /// The time that it shows at a true time.
    pub(super) fn at(&self, time: u64) -> u64 {
        let (from, until) = self.stands;
        self.counted(time.min(from) + time.saturating_sub(until))
    }

    /// The time that it shows when it has run for so long.
    fn counted(&self, time: u64) -> u64 {
        let gained = i128::from(time) * i128::from(self.rate) / 1_000_000;
        (i128::from(self.start) + i128::from(time) + gained) as u64
    }

    /// The first true time at which it shows this, or later.
    pub(super) fn when(&self, shown: Moment) -> u64 {
        if shown == Moment::NEVER {
            return u64::MAX;
        }
        let passed = i128::from(shown.as_nanos()) - i128::from(self.start);
        if passed <= 0 {
            return 0;
        }
        let mut time = (passed * 1_000_000 / i128::from(1_000_000 + self.rate)) as u64;
        time = time.saturating_sub(2);
        while self.counted(time) < shown.as_nanos() {
            time += 1;
        }
        let (from, until) = self.stands;
        if time > from { time + (until - from) } else { time }
    }

    /// From here on, this thread runs as the process that has this clock.
    pub(super) fn enter(&self) {
        simulated::set_now(self.at(now()));
        simulated::set_process(self.process);
    }
}
