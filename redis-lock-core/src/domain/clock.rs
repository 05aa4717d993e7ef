//! The clock that leases are measured with: monotonic, and running while the machine is suspended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point on the suspend-aware monotonic clock, in nanoseconds since an arbitrary start.
///
/// `std::time::Instant` stops while a Linux host is suspended, so a guard would believe in a lease
/// that the server ended long ago. `CLOCK_BOOTTIME`, which `env` reads, keeps counting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Later than every moment that is ever reached: the end of a lease that never expires.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// Where the clock counts from.
    pub(crate) const START: Self = Self(0);

    pub(crate) fn now() -> Self {
        Self(crate::domain::env::nanos())
    }

    /// Nanoseconds since the start of the clock.
    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    #[cfg(test)]
    pub(crate) const fn at_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    pub(crate) fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(nanos(wait)))
    }

    /// Rounds down to a grid of points in time that are 2^`exponent` nanoseconds apart, one of
    /// which is at `phase`.
    pub(crate) fn at_or_before(self, exponent: u32, phase: u64) -> Self {
        let mask = u64::MAX.checked_shl(exponent).unwrap_or(0);
        let beyond = self.0.wrapping_sub(phase) & !mask;
        Self(self.0.saturating_sub(beyond))
    }

    /// A hash of it, as a cheap source of bits that differ from call to call.
    pub(crate) fn scrambled(self) -> u8 {
        // Fibonacci hashing: neighbours end up far apart.
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    /// The time from `earlier` to this moment; zero when `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        if self == Self::NEVER {
            return Duration::MAX;
        }
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Such as `2026-11-21T08:30:00Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (since / 86_400, since % 86_400);
    // After Howard Hinnant's `civil_from_days`, which counts in eras of 400 years that begin in March.
    let (era, of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_never_reached() {
        assert!(Moment::now() < Moment::NEVER);
        assert_eq!(Moment::NEVER.since(Moment::now()), Duration::MAX);
        assert_eq!(Moment::at_millis(5).after(Duration::MAX), Moment::NEVER);
    }

    #[test]
    fn moments_are_moved_back_to_points_that_others_share() {
        let moved = |nanos, phase| Moment(nanos).at_or_before(4, phase).0;
        assert_eq!([moved(31, 0), moved(32, 0), moved(47, 0), moved(48, 0)], [16, 32, 32, 48]);
        assert_eq!([moved(36, 5), moved(37, 5), moved(52, 5), moved(53, 5)], [21, 37, 37, 53]);
        assert_eq!(moved(3, 5), 0, "not before the start");
        assert_eq!(Moment(99).at_or_before(0, 7), Moment(99));
    }

    #[test]
    fn time_before_the_start_counts_as_none() {
        assert_eq!(Moment::at_millis(5).since(Moment::at_millis(7)), Duration::ZERO);
    }
}

#[cfg(test)]
mod timestamp_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), shown);
        }
    }
}
