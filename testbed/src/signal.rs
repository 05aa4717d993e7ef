use rustix::process::{Pid, Signal, kill_process as send};

/// Sends a signal to the process `pid`; one that is already gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is positive");
    let _ = send(pid, signal);
}

/// Freezes a process (`SIGSTOP`).
pub fn stop_process(pid: u32) {
    signal(pid, Signal::STOP);
}

/// Lets a frozen process run on (`SIGCONT`).
pub fn continue_process(pid: u32) {
    signal(pid, Signal::CONT);
}

/// Kills a process (`SIGKILL`).
pub fn kill_process(pid: u32) {
    signal(pid, Signal::KILL);
}
