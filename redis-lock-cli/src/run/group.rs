//! The command's process group: the command and all that it started, unless that left the group.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

pub(crate) struct Group(pub(crate) Pid);

impl Group {
    pub(crate) fn send(&self, signal: Signal) {
        // One that is empty by now needs no signal.
        let _ = kill_process_group(self.0, signal);
    }

    /// Whether each of its processes has ended. One whose status was not collected has.
    pub(crate) fn is_empty(&self) -> bool {
        if test_kill_process_group(self.0) == Err(Errno::SRCH) {
            return true;
        }
        // What is left may be zombies, where the system tells. A process that starts another one and ends
        // can hide from one look, as the list is read in pieces.
        let are_zombies = || {
            let members = self.members();
            !members.is_empty() && members.iter().all(|member| !member.lives)
        };
        are_zombies() && are_zombies()
    }

    /// The ids of those that run, where the system tells.
    pub(crate) fn living(&self) -> Vec<u32> {
        self.members().iter().filter(|member| member.lives).map(|member| member.pid).collect()
    }

    fn members(&self) -> Vec<Member> {
        let group = self.0.as_raw_nonzero().get();
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let member = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Member::parse(pid, group, &text)
        };
        pids.filter_map(member).collect()
    }
}

struct Member {
    pid: u32,
    lives: bool,
}

impl Member {
    /// Reads `/proc/PID/stat`; `None` for a process of another group.
    fn parse(pid: u32, group: i32, stat: &str) -> Option<Self> {
        // The name, in brackets, may contain anything.
        let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
        if fields.get(2)?.parse() != Ok(group) {
            return None;
        }
        // A process whose first thread has ended looks like a zombie while its other threads run.
        let is_zombie = matches!(*fields.first()?, "Z" | "X") && *fields.get(17)? == "1";
        Some(Self { pid, lives: !is_zombie })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_does_not_live_unless_other_threads_run() {
        let stat = |state: &str, threads: &str| {
            format!("7 (a) Z b) {state} 1 42 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 99")
        };
        let lives = |stat: &str| Member::parse(7, 42, stat).map(|member| member.lives);
        assert_eq!(lives(&stat("S", "1")), Some(true));
        assert_eq!(lives(&stat("Z", "1")), Some(false));
        assert_eq!(lives(&stat("Z", "3")), Some(true));
        assert!(Member::parse(7, 43, &stat("S", "1")).is_none());
    }
}
