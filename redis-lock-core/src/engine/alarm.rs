//! Wakes the engine when something is due.
//!
//! Tokio's timers count in milliseconds and round up, once to a tick of their own and once more where the
//! runtime waits for I/O: a waiter whose holder has died would look a millisecond later than it could, and
//! up to two. So on Linux the time is kept by a timer of the system, on the clock that leases are measured
//! with.

use std::time::Duration;

use crate::domain::clock::Moment;

/// The shortest time between two alarms. Timers of many locks that are due one shortly after the other
/// wake the engine together.
const SPACING: Duration = Duration::from_millis(1);

/// To be made on the engine's runtime.
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: Option<timer::Timer>,
    /// When it last rang.
    rang: Moment,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            timer: timer::Timer::new().ok(),
            rang: Moment::START,
        }
    }

    /// Ends at `due`, or soon after that when it has rung a moment ago. May also end before `due`, at a time
    /// that it was set to before: setting it again each time would be a system call.
    pub(super) async fn rings(&mut self, due: Moment, now: Moment) {
        let due = due.max(self.rang.after(SPACING));
        #[cfg(target_os = "linux")]
        if let Some(timer) = &mut self.timer {
            match timer.rings(due, now).await {
                Ok(at) => {
                    self.rang = at;
                    return;
                }
                // The system denies what it granted when the timer was made.
                Err(_) => self.timer = None,
            }
        }
        tokio::time::sleep(due.since(now)).await;
        self.rang = due;
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use std::future::poll_fn;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::task::{Context, Poll, ready};

    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
    use rustix::time::{timerfd_create, timerfd_settime};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use crate::domain::clock::Moment;

    /// A timer of the system.
    pub(super) struct Timer {
        fd: AsyncFd<OwnedFd>,
        /// When it rings, until it has rung.
        set_to: Option<Moment>,
    }

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
            #[allow(deprecated, reason = "what replaces it is unsafe, and this one owns its file")]
            let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
            Ok(Self { fd, set_to: None })
        }

        /// Returns the time for which it rang.
        pub(super) async fn rings(&mut self, due: Moment, now: Moment) -> io::Result<Moment> {
            let at = match self.set_to.filter(|at| (now..=due).contains(at)) {
                Some(at) => at,
                None => self.set(due)?,
            };
            poll_fn(|context| self.poll_rung(at, context)).await?;
            // It rings once. The clock may show the same time again when it is to ring the next time.
            self.set_to = None;
            Ok(at)
        }

        /// Returns when it rings.
        fn set(&mut self, due: Moment) -> io::Result<Moment> {
            const NANOS: u64 = 1_000_000_000;
            // Zero would mean never.
            let due = due.max(Moment::from_nanos(1));
            let (seconds, nanos) = (due.as_nanos() / NANOS, due.as_nanos() % NANOS);
            let it_value = Timespec {
                tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(nanos).unwrap_or(0),
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let at = Itimerspec { it_interval, it_value };
            timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &at)?;
            self.set_to = Some(due);
            Ok(due)
        }

        /// The runtime may still know that it rang for an earlier time. It is not read: each time it rings
        /// is reported once, and setting it again makes it silent.
        fn poll_rung(&self, at: Moment, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            loop {
                ready!(self.fd.poll_read_ready(context))?.clear_ready();
                if Moment::now() >= at {
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// How much later than it was set to it rings at the least, when it is set to so many microseconds after
    /// some of the milliseconds since the runtime was made.
    #[cfg(target_os = "linux")]
    fn least_delay(micros: u64) -> Duration {
        let made = Moment::now();
        runtime().block_on(async {
            let mut alarm = Alarm::new();
            let mut least = Duration::MAX;
            for number in 1..=16 {
                let millis = Duration::from_millis(3) * number;
                let due = made.after(millis + Duration::from_micros(micros));
                while Moment::now() < due {
                    alarm.rings(due, Moment::now()).await;
                }
                least = least.min(Moment::now().since(due));
            }
            least
        })
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn it_rings_within_the_millisecond() {
        // Right after one of Tokio's ticks its own timers would ring almost a millisecond later.
        let delays = [0, 125, 250, 375, 500, 625, 750, 875].map(least_delay);
        let most = delays.iter().max().unwrap();
        assert!(*most < Duration::from_micros(500), "it rings with the ticks: {delays:?}");
    }

    #[test]
    fn timers_that_are_due_one_after_the_other_ring_together() {
        let begun = Moment::now();
        let rung = runtime().block_on(async {
            let mut alarm = Alarm::new();
            let mut rung = 0;
            for micros in 0..1_000 {
                let due =
                    begun.after(Duration::from_millis(5) + Duration::from_micros(20) * micros);
                while Moment::now() < due {
                    alarm.rings(due, Moment::now()).await;
                    rung += 1;
                }
            }
            rung
        });
        let passed = Moment::now().since(begun).as_millis();
        assert!(rung <= passed, "{rung} times in {passed} ms");
    }

    #[test]
    fn it_rings_for_a_time_that_is_over_and_for_an_earlier_one_than_before() {
        runtime().block_on(async {
            let mut alarm = Alarm::new();
            let late = Moment::now().after(Duration::from_secs(3600));
            let until = tokio::time::sleep(Duration::from_millis(2));
            tokio::select! {
                () = alarm.rings(late, Moment::now()) => panic!("it rang an hour early"),
                () = until => {}
            }
            for due in [Moment::now().after(Duration::from_millis(3)), Moment::START] {
                let rings = alarm.rings(due, Moment::now());
                tokio::time::timeout(Duration::from_secs(60), rings).await.unwrap();
                assert!(Moment::now() >= due);
            }
        });
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn where_the_system_has_no_such_timer_it_rings_with_the_ticks() {
        runtime().block_on(async {
            let mut alarm = Alarm { timer: None, rang: Moment::START };
            for _ in 0..3 {
                let (due, before) = (Moment::now().after(Duration::from_millis(2)), alarm.rang);
                alarm.rings(due, Moment::now()).await;
                assert!(Moment::now() >= due && alarm.rang >= before.after(SPACING));
            }
        });
    }

    #[test]
    fn it_rings_again_although_the_clock_has_not_moved_since_it_rang() {
        runtime().block_on(async {
            let mut alarm = Alarm::new();
            let due = Moment::now().after(Duration::from_millis(3));
            alarm.rings(due, Moment::now()).await;
            let next = due.after(Duration::from_millis(3));
            let rings = alarm.rings(next, due);
            tokio::time::timeout(Duration::from_secs(10), rings).await.unwrap();
        });
    }
}
