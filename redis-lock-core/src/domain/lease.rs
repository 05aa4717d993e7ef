//! The arithmetic of a lease, without a clock of its own.

use std::time::Duration;

use crate::domain::clock::Moment;

/// How much earlier than the server this side considers a lease ended: the clocks may run at
/// slightly different speeds, and the server rounds to milliseconds.
pub(crate) fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// The lease whose end, as this side reckons it, is not before `hold` has passed.
pub(crate) fn covering(hold: Duration) -> Duration {
    crate::domain::demand::whole_millis(
        hold.saturating_add(hold / 50).saturating_add(Duration::from_millis(5)),
    )
}

/// The end of a lease of `ttl` that was asked for with a request sent at `sent`.
pub(crate) fn deadline(sent: Moment, ttl: Option<Duration>) -> Moment {
    ttl.map_or(Moment::NEVER, |ttl| sent.after(ttl.saturating_sub(margin(ttl))))
}

/// When to renew: after a third of the lease, which leaves time for two more tries. `spread` in
/// 0..=255 moves it by up to a tenth either way, so that locks taken together are not renewed together.
pub(crate) fn renewal(sent: Moment, ttl: Duration, spread: u8) -> Moment {
    let tenth = ttl / 30;
    sent.after(ttl / 3 - tenth + tenth * 2 * u32::from(spread) / 255)
}

/// When to try a failed renewal again.
pub(crate) fn renewal_retry(now: Moment, ttl: Duration) -> Moment {
    now.after((ttl / 20).clamp(Duration::from_millis(10), Duration::from_millis(200)))
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
        let ttl = Duration::from_secs(30);
        assert_eq!(renewal(SENT, ttl, 0), Moment::at_millis(10_000));
        assert_eq!(renewal(SENT, ttl, 255), Moment::at_millis(12_000));
    }
}
