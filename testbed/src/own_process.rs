use std::env;
use std::process::{Command, Stdio};
use std::thread;

/// Says in the process that it is one of its own.
const MARK: &str = "TESTBED_OWN_PROCESS";

/// Runs a test in a process of its own, as `cargo nextest` runs every test: one that changes or
/// reads what a process has once, such as its subscriber, would meet the tests beside it.
#[track_caller]
pub fn in_own_process(test: impl FnOnce()) {
    // The harness names a test's thread after it, unless it runs one test after the other.
    let name = thread::current().name().filter(|name| *name != "main").map(ToOwned::to_owned);
    let is_alone = ["NEXTEST", MARK].iter().any(|name| env::var_os(name).is_some());
    let (Some(name), false) = (name, is_alone) else { return test() };
    let program = env::current_exe().expect("the path of this program");
    let output = Command::new(program)
        .args([name.as_str(), "--exact", "--include-ignored", "--nocapture"])
        .env(MARK, "1")
        .stdin(Stdio::null())
        .output()
        .expect("a process for the test");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "in a process of its own:\n{text}");
    assert!(text.contains("1 passed"), "it did not run:\n{text}");
}
