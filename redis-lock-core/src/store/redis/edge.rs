//! Times that a server sent, as values that nothing overflows with. Another program, or a clock, may have
//! set them to anything.

use std::time::Duration;

use crate::domain::clock::Moment;
use crate::domain::fence::LARGEST;

/// The server's clock, from the seconds and microseconds that it answers to `TIME`.
pub(super) fn time((seconds, micros): (u64, u64)) -> Option<Moment> {
    let time = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    (time < LARGEST).then(|| Moment::START.after(Duration::from_micros(time)))
}

/// What is left of a key's or a place's time; `None` where it has no end. It is at most 285 years.
pub(super) fn left(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(|millis| Duration::from_millis(millis.min(LARGEST / 1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_so_large_that_it_overflows() {
        assert_eq!(time((1, 5)), Some(Moment::from_nanos(1_000_005_000)));
        for odd in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 50, 0)] {
            assert_eq!(time(odd), None, "{odd:?}");
        }
        assert_eq!(left(-1), None);
        let longest = left(i64::MAX).unwrap();
        assert!(Moment::START.after(longest * 2) < Moment::NEVER);
    }
}
