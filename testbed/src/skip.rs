use std::fs::OpenOptions;
use std::io::{Write, stderr};
use std::thread;

/// Says, visibly, that the current test cannot run on this machine, and returns from it.
///
/// ```ignore
/// let Some(python) = testbed::python_with_redis() else { testbed::skip!("needs Python 3") };
/// ```
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::report_skipped(&format!($($reason)+));
        return;
    }};
}

/// Writes the line that [`skip!`](crate::skip!) shows.
///
/// Not through `eprintln!`, which the test harness swallows when a test passes. A runner that
/// captures even this names a file in `TESTBED_SKIPPED`, and shows its lines at the end.
pub fn report_skipped(reason: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("SKIPPED {test}: {reason}\n");
    let _ = stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("TESTBED_SKIPPED")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}
