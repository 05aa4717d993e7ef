//! The arithmetic of a lease and of its fencing numbers. Time is an argument.

use std::ops::Range;
use std::time::Duration;

use crate::domain::clock::Moment;

/// How much earlier than the server this side considers a lease ended: the clocks may run at
/// slightly different speeds, and the server rounds to milliseconds.
pub(crate) fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// The shortest lease that, by this side's clock, lasts at least as long as `hold`.
pub(crate) fn covering(hold: Duration) -> Duration {
    whole_millis(hold.saturating_add(hold / 50).saturating_add(Duration::from_millis(5)))
}

/// Rounds up: a lease must never be shorter than was asked for.
pub(crate) fn whole_millis(duration: Duration) -> Duration {
    let rest = duration.subsec_nanos() % 1_000_000;
    if rest == 0 {
        return duration;
    }
    // `check_millis` refuses what overflows here.
    duration.saturating_add(Duration::from_nanos(u64::from(1_000_000 - rest)))
}

/// The end of a lease of `ttl` that was asked for with a request sent at `sent`.
pub(crate) fn deadline(sent: Moment, ttl: Option<Duration>) -> Moment {
    ttl.map_or(Moment::NEVER, |ttl| sent.after(ttl.saturating_sub(margin(ttl))))
}

/// When to renew: after a third of the lease, which leaves time for two more tries. `spread` in
/// 0..=255 moves it by up to a tenth either way, so that locks taken together are not renewed together.
///
/// The time is then rounded down to a grid that all locks with such a lease share: renewals that
/// are due together go in one command, and wake the engine once. `phase` moves the grid, so that
/// processes have different ones.
pub(crate) fn renewal(sent: Moment, ttl: Duration, spread: u8, phase: u64) -> Moment {
    // In nanoseconds: each division of a `Duration` is several of machine words.
    let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
    let (third, step) = (ttl / 3, ttl / (30 * 255));
    let wait = third - step * 255 + step * 2 * u64::from(spread);
    sent.after(Duration::from_nanos(wait)).at_or_before(shared_points(ttl), phase)
}

/// The distance of the points of that grid, as a power of two of nanoseconds: at most a 64th of the
/// lease, and at most 67 ms, because larger batches save nothing more and delay other commands for
/// longer.
fn shared_points(ttl: u64) -> u32 {
    (ttl / 64).checked_ilog2().unwrap_or(0).min(26)
}

/// When to try a failed renewal again.
pub(crate) fn renewal_retry(now: Moment, ttl: Duration) -> Moment {
    now.after((ttl / 20).clamp(Duration::from_millis(10), Duration::from_millis(200)))
}

/// How many fencing numbers a fenced acquisition reserves, so that local hand-overs need no server.
/// Numbers follow the server's clock in microseconds. A larger reservation could take more numbers
/// than microseconds pass during an acquisition, and would run ahead of the clock.
pub(crate) const FENCES: u32 = 32;

/// From here on a double, which scripts count with, skips numbers, so two holders would be given the
/// same one.
pub(crate) const LARGEST_FENCE: u64 = 1 << 53;

/// The text of a number; `None` if this library never gives such a number.
pub(crate) fn read_fence(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number <= LARGEST_FENCE || planted!(FenceUnbounded))
}

/// The numbers of the reservation that ends with `last`.
pub(crate) fn reserved_fences(last: u64) -> Range<u64> {
    let end = last.saturating_add(1);
    end.saturating_sub(FENCES.into())..end
}

/// The last number of the reservation that begins with `first`.
pub(crate) fn last_fence(first: u64) -> u64 {
    first.saturating_add(u64::from(FENCES) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Moment = Moment::at_millis(1_000);

    #[test]
    fn c8_the_lease_starts_when_the_request_is_sent_and_ends_before_the_server_ends_it() {
        let ttl = Duration::from_secs(10);
        assert_eq!(deadline(SENT, Some(ttl)), Moment::at_millis(1_000 + 10_000 - 102));
        assert_eq!(deadline(SENT, None), Moment::NEVER);
    }

    #[test]
    fn a_lease_that_covers_a_hold_ends_after_it_and_not_much_later() {
        for hold in [1, 999, 30_000, 86_400_000].map(Duration::from_millis) {
            let lease = covering(hold);
            assert!(deadline(SENT, Some(lease)) >= SENT.after(hold), "{hold:?}");
            assert!(lease <= hold + hold / 40 + Duration::from_millis(10), "{hold:?}: {lease:?}");
        }
    }

    #[test]
    fn renewals_are_spread_around_a_third() {
        for millis in [20, 400, 6_000, 30_000] {
            let ttl = Duration::from_millis(millis);
            let earliest = SENT.after(ttl * 3 / 10 - ttl / 64);
            let latest = SENT.after(ttl * 11 / 30);
            for spread in [0, 100, 255] {
                for phase in [0, 4_711, u64::MAX] {
                    let at = renewal(SENT, ttl, spread, phase);
                    assert!((earliest..=latest).contains(&at), "{ttl:?} {spread} {phase}: {at:?}");
                }
            }
            let (first, last) = (renewal(SENT, ttl, 0, 0), renewal(SENT, ttl, 255, 0));
            assert!(last.since(first) > ttl / 30, "{ttl:?}");
        }
    }

    #[test]
    fn renewals_of_one_process_meet_and_those_of_others_do_not() {
        let ttl = Duration::from_secs(6);
        let of = |phase| {
            let sent = (0..1_000_u64).map(|taken| Moment::at_millis(1_000 + taken));
            sent.map(move |sent| renewal(sent, ttl, (sent.as_nanos() >> 20) as u8, phase))
        };
        let points: std::collections::BTreeSet<_> = of(77).collect();
        assert!((10..=24).contains(&points.len()), "{points:?}");
        assert!(of(3_000_000).all(|point| !points.contains(&point)));
    }
    #[test]
    fn a_failed_renewal_is_tried_again_after_a_part_of_the_lease() {
        for (ttl, pause) in [(100, 10), (400, 20), (2_000, 100), (30_000, 200)] {
            let pause = SENT.after(Duration::from_millis(pause));
            assert_eq!(renewal_retry(SENT, Duration::from_millis(ttl)), pause, "{ttl} ms");
        }
    }
}

#[cfg(test)]
mod fence_tests {
    use super::*;

    #[test]
    fn numbers_are_read_up_to_the_largest_and_reserved_without_overflow() {
        assert_eq!(read_fence("9007199254740992"), Some(LARGEST_FENCE));
        for odd in ["9007199254740993", "18446744073709551616", "1e3", "-1", "", "inf", "7\0"] {
            assert_eq!(read_fence(odd), None, "{odd:?}");
        }
        assert_eq!(reserved_fences(40), 9..41);
        assert_eq!(reserved_fences(3), 0..4);
        assert_eq!(reserved_fences(u64::MAX).end, u64::MAX);
    }
}
