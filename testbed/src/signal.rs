use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process as send};

/// Sends a signal to the process `pid`; one that is already gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is positive");
    let _ = send(pid, signal);
}

/// Freezes a process (`SIGSTOP`), and returns when each of its threads stands still: the signal
/// only asks for that.
pub fn stop_process(pid: u32) {
    signal(pid, Signal::STOP);
    // A process that is gone, or that others let run on meanwhile, never stops.
    for _ in 0..2000 {
        if is_stopped(pid) || !exists(pid) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Lets a frozen process run on (`SIGCONT`).
pub fn continue_process(pid: u32) {
    signal(pid, Signal::CONT);
}

/// Kills a process (`SIGKILL`).
pub fn kill_process(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Whether the process is frozen: every thread of it.
pub fn is_stopped(pid: u32) -> bool {
    let states = thread_states(pid).unwrap_or_else(|| vec![process_state(pid)]);
    !states.is_empty() && states.iter().all(|state| matches!(state, Some('T' | 't')))
}

/// The states of a process's threads, where the system shows them in files.
fn thread_states(pid: u32) -> Option<Vec<Option<char>>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let state = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name of the program, in brackets, may contain anything.
        text.rsplit_once(") ")?.1.chars().next()
    };
    Some(threads.filter_map(Result::ok).map(state).collect())
}

fn process_state(pid: u32) -> Option<char> {
    let output = Command::new("ps").args(["-o", "state=", "-p", &pid.to_string()]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim_start().chars().next()
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is positive");
    rustix::process::test_kill_process(pid).is_ok()
}
