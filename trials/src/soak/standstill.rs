use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::now;

/// For how long this process stood still, in milliseconds.
static TOTAL: AtomicU64 = AtomicU64::new(0);

const TICK: Duration = Duration::from_millis(50);

/// Longer than the nemesis freezes a worker.
const SHORTEST: Duration = Duration::from_secs(3);

/// Watches, for the rest of this process, whether it stands still for long, as with a machine that
/// is suspended. A call that took long because of that is no failure. Shorter standstills are told too: a lease
/// that was lost meanwhile has an excuse.
pub(crate) fn watch(tell: impl Fn(Range<u64>) + Send + 'static) {
    thread::spawn(move || {
        loop {
            let (before, from) = (Instant::now(), now());
            thread::sleep(TICK);
            note(before.elapsed());
            if before.elapsed() > TICK * 2 {
                tell(from..now());
            }
        }
    });
}

fn note(tick: Duration) {
    if tick >= SHORTEST {
        TOTAL.fetch_add(tick.as_millis().try_into().unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

/// How long something takes, without the time for which the process stood still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    start: Instant,
    total: u64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), total: TOTAL.load(Ordering::SeqCst) }
    }

    /// How long it took, without standstills, if that is too long.
    pub(crate) fn late_above(self, limit: Duration) -> Option<Duration> {
        let took = self.start.elapsed();
        if took <= limit {
            return None;
        }
        // The watching thread may wake up later than this one.
        thread::sleep(TICK * 2);
        let stood_still = TOTAL.load(Ordering::SeqCst) - self.total;
        let took = took.saturating_sub(Duration::from_millis(stood_still));
        (took > limit).then_some(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_slept_through_is_not_late_and_what_is_late_by_itself_is() {
        let ago = Instant::now().checked_sub(Duration::from_secs(30)).unwrap();
        let limit = Duration::from_secs(8);
        let long = Stopwatch { start: ago, ..Stopwatch::start() };
        assert!(Stopwatch::start().late_above(limit).is_none());
        assert!(long.late_above(limit).is_some());
        note(Duration::from_secs(2));
        assert!(long.late_above(limit).is_some(), "a worker that was frozen");
        note(Duration::from_secs(28));
        assert!(long.late_above(limit).is_none());
        assert!(Stopwatch { start: ago, ..Stopwatch::start() }.late_above(limit).is_some());
    }
}
