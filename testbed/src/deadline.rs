use std::thread;
use std::time::{Duration, Instant};

/// For things that happen at some time, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Long enough that an expiry cannot hide what was left behind.
pub const LONG: Duration = Duration::from_secs(30);

const STEP: Duration = Duration::from_millis(5);

/// Waits until `condition` holds and says how long that took; panics, naming `what`, after
/// `timeout`.
///
/// Blocks the thread. In an async test that is fine where the lock's own thread does the work
/// that is waited for.
#[track_caller]
pub fn eventually(timeout: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    loop {
        if condition() {
            return start.elapsed();
        }
        assert!(start.elapsed() < timeout, "after {timeout:?} still not so: {what}");
        thread::sleep(STEP);
    }
}

/// Measures something up to three times; panics, naming `what`, when each time took `limit` or more.
///
/// For what a message makes prompt, and what would also happen later without one. A busy machine
/// makes one turn slow; a message that is not sent makes all of them slow.
#[track_caller]
pub fn must_be_prompt(limit: Duration, what: &str, mut turn: impl FnMut() -> Duration) {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        fastest = fastest.min(turn());
        if fastest < limit {
            return;
        }
    }
    panic!("three times it took {fastest:?} or more: {what}");
}

/// Watches that `condition` stays true for `duration`; panics, naming `what`, when it does not.
#[track_caller]
pub fn holds_for(duration: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < duration {
        assert!(condition(), "after {:?} no longer so: {what}", start.elapsed());
        thread::sleep(STEP);
    }
}
