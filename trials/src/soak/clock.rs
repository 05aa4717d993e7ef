use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

/// A time in the clock's nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
