//! Subscribers and recorders are the user's code, which may panic or block. What callers have not found
//! themselves is reported on a thread of the process, so that no answer waits for it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use once_cell::race::OnceBox;

use crate::domain::env;

/// The most reports that may wait for a subscriber or a recorder that blocks. Later ones are dropped.
const MOST_REPORTS: usize = 65_536;

/// The thread ends when nothing was reported for this long.
const QUIET: Duration = Duration::from_secs(1);

type Report = Box<dyn FnOnce() + Send>;

/// Runs the user's code. If it panics, the panic hook has printed the message.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => return Some(value),
        Err(payload) => payload,
    };
    // Its drop is the user's code as well.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
    None
}

/// Reports something on the thread for reports, behind what was left to it before.
pub(crate) fn later(report: impl FnOnce() + Send + 'static) {
    #[cfg(test)]
    if env::simulated::is_active() {
        // A thread would make a history differ from run to run.
        caught(report);
        return;
    }
    Reporter::of_process().add(Box::new(report));
}

/// The reports of one process.
#[derive(Default)]
struct Reporter {
    process: u32,
    queue: Mutex<ReportQueue>,
    news: Condvar,
    /// That of a forked child process, which lacks the thread of this one.
    next: OnceBox<Self>,
}

#[derive(Default)]
struct ReportQueue {
    reports: VecDeque<Report>,
    has_thread: bool,
    /// Whether the thread must wake for the next report.
    is_idle: bool,
}

impl Reporter {
    fn of_process() -> &'static Self {
        static FIRST: OnceBox<Reporter> = OnceBox::new();
        let process = env::process();
        let mut slot = &FIRST;
        loop {
            let reporter = slot.get_or_init(|| Box::new(Self { process, ..Self::default() }));
            if reporter.process == process {
                return reporter;
            }
            slot = &reporter.next;
        }
    }

    fn queue(&self) -> MutexGuard<'_, ReportQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, report: Report) {
        let mut queue = self.queue();
        if queue.reports.len() >= MOST_REPORTS {
            return;
        }
        queue.reports.push_back(report);
        if std::mem::take(&mut queue.is_idle) {
            self.news.notify_one();
        }
        if !queue.has_thread {
            let builder = thread::Builder::new().name("redis-locks-tell".into());
            // If no thread can be started, the next report tries again.
            queue.has_thread = builder.spawn(|| self.serve()).is_ok();
        }
    }

    fn serve(&self) {
        while let Some(report) = self.next_report() {
            caught(report);
        }
    }

    /// The next report; `None` when the thread should end.
    fn next_report(&self) -> Option<Report> {
        let mut queue = self.queue();
        loop {
            if let Some(report) = queue.reports.pop_front() {
                return Some(report);
            }
            queue.is_idle = true;
            let waited = self.news.wait_timeout(queue, QUIET);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            if timeout.timed_out() && queue.reports.is_empty() {
                (queue.has_thread, queue.is_idle) = (false, false);
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_report_whose_panic_panics_again_stops_no_other() {
        struct Worse;
        impl Drop for Worse {
            fn drop(&mut self) {
                panic!("the drop of a payload, as planned");
            }
        }
        later(|| std::panic::panic_any(Worse));
        let (tell, hear) = mpsc::channel();
        later(move || tell.send(()).unwrap());
        assert_eq!(hear.recv_timeout(Duration::from_secs(10)), Ok(()));
    }

    #[test]
    fn reports_that_come_after_a_quiet_time_are_told() {
        let (tell, hear) = mpsc::channel();
        for round in 0..3 {
            let tell = tell.clone();
            later(move || tell.send(round).unwrap());
            assert_eq!(hear.recv_timeout(Duration::from_secs(10)), Ok(round));
            thread::sleep(QUIET.mul_f64(0.7 * f64::from(round)));
        }
    }

    #[test]
    fn a_child_process_has_a_reporter_of_its_own() {
        let parent = Reporter::of_process();
        let process = parent.process;
        env::simulated::begin(0, 1);
        env::simulated::set_process(process.wrapping_add(1));
        let child = Reporter::of_process();
        let again = Reporter::of_process();
        env::simulated::end();
        assert!(!std::ptr::eq(parent, child) && std::ptr::eq(child, again));
    }

    #[test]
    fn reports_beyond_a_limit_are_dropped() {
        let reporter: &'static Reporter = Box::leak(Box::default());
        reporter.queue().has_thread = true;
        for _ in 0..MOST_REPORTS + 5 {
            reporter.add(Box::new(|| {}));
        }
        assert_eq!(reporter.queue().reports.len(), MOST_REPORTS);
    }
}
