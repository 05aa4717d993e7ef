//! The server's clock between two readings, so that not every transaction has to ask for the time.
//!
//! Places in the queue, and whether one has ended, need the time to some milliseconds only. The order
//! of the queue needs more care: where the clock was set back, tickets have to follow the last one of
//! their queue, which is then read each time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::domain::clock::Moment;

/// For how long a reading is used. A clock that is set is noticed after that.
const FRESH: Duration = Duration::from_secs(1);

/// The longest round trip of a reading that is used: it is off by half of that at most.
const QUICK: Duration = Duration::from_millis(5);

/// By more than this the clock does not differ from what was expected, unless it was set.
const TOLERANCE: Duration = Duration::from_millis(20);

/// For how long every time is read after the clock was set: the places of all that waited then have
/// ended, or were renewed, long before.
const WARY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct ServerClock(Mutex<Known>);

#[derive(Clone, Copy, Default)]
struct Known {
    reading: Option<ClockReading>,
    /// Until when nothing is worked out, by this side's clock.
    wary: Option<Moment>,
}

#[derive(Clone, Copy)]
struct ClockReading {
    /// By this side's clock.
    at: Moment,
    time: Moment,
}

impl ClockReading {
    fn expected(&self, at: Moment) -> Moment {
        self.time.after(at.since(self.at))
    }
}

impl ServerClock {
    /// The server's time; `None` when it has to be read.
    pub(super) fn time(&self, now: Moment) -> Option<Moment> {
        let known = *self.known();
        if known.wary.is_some_and(|until| now < until) {
            return None;
        }
        let reading = known.reading.filter(|reading| now.since(reading.at) < FRESH)?;
        Some(reading.expected(now))
    }

    /// The server's time was `time` at some moment between `sent` and `now`.
    pub(super) fn was_read(&self, sent: Moment, now: Moment, time: Moment) {
        let at = sent.after(now.since(sent) / 2);
        let mut known = self.known();
        if known.reading.is_some_and(|it| time.after(TOLERANCE) < it.expected(sent)) {
            known.wary = Some(now.after(WARY));
        }
        if now.since(sent) <= QUICK {
            known.reading = Some(ClockReading { at, time });
        }
    }

    /// The last waiter of a queue that was read at the server's time `time` has this ticket.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "microseconds since 1970"
    )]
    pub(super) fn saw_ticket(&self, now: Moment, time: Moment, ticket: f64) {
        if Moment::START.after(Duration::from_micros(ticket as u64)) > time.after(TOLERANCE) {
            self.known().wary = Some(now.after(WARY));
        }
    }

    #[cfg(test)]
    pub(super) fn forget(&self) {
        *self.known() = Known::default();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: Duration = Duration::from_secs(1_000);

    fn at(millis: u64) -> Moment {
        Moment::at_millis(millis)
    }

    fn read_once() -> ServerClock {
        let clock = ServerClock::default();
        assert_eq!(clock.time(at(10)), None, "nothing was read");
        clock.was_read(at(10), at(14), at(12).after(AHEAD));
        clock
    }

    #[test]
    fn the_time_goes_on_from_a_quick_reading_for_a_second() {
        let clock = read_once();
        assert_eq!(clock.time(at(500)), Some(at(500).after(AHEAD)));
        assert_eq!(clock.time(at(1_012)), None, "it has to be read again");
        clock.was_read(at(1_000), at(1_100), at(1_040).after(AHEAD));
        assert_eq!(clock.time(at(1_101)), None, "that reading was slow");
    }

    #[test]
    fn a_clock_that_was_set_back_is_read_each_time_for_a_minute() {
        let clock = read_once();
        clock.was_read(at(900), at(902), at(700).after(AHEAD));
        assert_eq!(clock.time(at(903)), None);
        clock.was_read(at(61_000), at(61_002), at(60_801).after(AHEAD));
        assert_eq!(clock.time(at(61_003)), Some(at(60_803).after(AHEAD)));
    }

    #[test]
    fn a_ticket_from_the_future_tells_that_the_clock_was_set_back() {
        let clock = read_once();
        let ticket = |millis| at(millis).after(AHEAD).since(Moment::START).as_micros() as f64;
        clock.saw_ticket(at(100), at(100).after(AHEAD), ticket(119));
        assert!(clock.time(at(101)).is_some(), "clients differ by some milliseconds");
        clock.saw_ticket(at(100), at(100).after(AHEAD), ticket(121));
        assert_eq!(clock.time(at(101)), None);
    }
}
