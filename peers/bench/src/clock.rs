//! A clock that all processes of a machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since some moment that is the same for all processes.
pub(crate) fn now() -> Duration {
    read(ClockId::Monotonic)
}

/// The time that all threads of this process together have spent computing.
pub(crate) fn computed() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}
