use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Turns of something that has to be in time. A turn that was not is a failure, unless this machine kept a
/// thread of its own waiting meanwhile: then another one is taken, up to three in all.
///
/// On a machine that is idle it excuses nothing, so it is for the longest of many times, and for bounds that
/// are closer than a busy machine keeps. For one message that may be late there is
/// [`must_be_prompt`](crate::must_be_prompt).
///
/// ```
/// # let took = || std::time::Duration::ZERO;
/// let mut turns = testbed::Turns::of("each is served within a second");
/// while turns.go_on() {
///     turns.must_be_below(std::time::Duration::from_secs(1), took());
/// }
/// ```
#[derive(Debug)]
pub struct Turns {
    what: &'static str,
    taken: u32,
    is_over: bool,
    lateness: Option<Lateness>,
}

const MOST: u32 = 3;

/// Later than this no thread is woken where a processor is free.
const LATE: Duration = Duration::from_millis(10);

impl Turns {
    /// `what` has to be so.
    pub fn of(what: &'static str) -> Self {
        Self { what, taken: 0, is_over: false, lateness: None }
    }

    /// Whether another turn is to be taken, which begins now.
    pub fn go_on(&mut self) -> bool {
        if !self.is_over {
            self.taken += 1;
            self.lateness = Some(Lateness::watch());
        }
        !self.is_over
    }

    /// Ends a turn that took this long.
    #[track_caller]
    pub fn must_be_below(&mut self, limit: Duration, took: Duration) {
        let is_below = took < limit;
        self.end(is_below.then_some(()).ok_or_else(|| format!("it took {took:?}")));
    }

    /// Ends a turn, and says what was wrong with it.
    #[track_caller]
    pub fn end(&mut self, outcome: Result<(), String>) {
        let late = self.lateness.take().map_or(Duration::ZERO, Lateness::worst);
        self.is_over = outcome.is_ok();
        let (what, turn) = (self.what, self.taken);
        if let Err(wrong) = outcome {
            let is_excused = late >= LATE && turn < MOST;
            assert!(
                is_excused,
                "in turn {turn}, with threads {late:?} late, not so: {what}; {wrong}"
            );
            eprintln!("turn {turn} does not count, with threads {late:?} late: {what}; {wrong}");
        }
    }
}

/// Watches how late a thread is woken, which sleeps most of the time.
#[derive(Debug)]
struct Lateness {
    /// The thread ends when this is dropped.
    is_watched: Arc<()>,
    thread: JoinHandle<Duration>,
}

impl Lateness {
    fn watch() -> Self {
        const STEP: Duration = Duration::from_millis(1);
        let is_watched = Arc::new(());
        let watched = Arc::downgrade(&is_watched);
        let thread = thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while watched.strong_count() > 0 {
                let before = Instant::now();
                thread::sleep(STEP);
                worst = worst.max(before.elapsed().saturating_sub(STEP));
            }
            worst
        });
        Self { is_watched, thread }
    }

    fn worst(self) -> Duration {
        drop(self.is_watched);
        self.thread.join().unwrap_or_default()
    }
}
