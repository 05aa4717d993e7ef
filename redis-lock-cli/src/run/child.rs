//! The command that runs under the lock.

use std::ffi::OsString;

use redis_lock_core::Guard;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};

use super::group::Group;
use super::start::starter;
use super::terminal::keep_from_stopping;
use crate::exit::{Code, Failure};

pub(crate) struct Child {
    pid: Pid,
    /// Its exit code, once it has ended. The processes that it started may run on.
    pub(crate) ended: Option<Code>,
}

impl Child {
    pub(crate) fn spawn(
        command: &[OsString],
        guard: &Guard,
        in_foreground: bool,
        json: bool,
    ) -> Result<Self, Failure> {
        let mut starter = starter(command, in_foreground, json)?;
        starter
            .env("REDIS_LOCK_KEY", guard.key())
            .env("REDIS_LOCK_TOKEN", guard.token().to_string());
        match guard.fence() {
            Some(fence) => starter.env("REDIS_LOCK_FENCE", fence.to_string()),
            // That of a lock around this one would be taken for its own.
            None => starter.env_remove("REDIS_LOCK_FENCE"),
        };
        match guard.slot() {
            Some(slot) => starter.env("REDIS_LOCK_SLOT", slot.to_string()),
            None => starter.env_remove("REDIS_LOCK_SLOT"),
        };
        keep_from_stopping();
        let pid = Pid::from_child(&starter.spawn()?);
        Ok(Self { pid, ended: None })
    }

    pub(crate) fn group(&self) -> Group {
        Group(self.pid)
    }

    /// Collects what has changed: this process may be the parent of orphans, too, as the first process of
    /// a container is. Returns the signal by which the command was stopped.
    pub(crate) fn collect(&mut self) -> Option<Signal> {
        let mut stopped = None;
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    stopped = status.stopping_signal().and_then(Signal::from_named_raw);
                    if !status.stopped() {
                        self.ended = Some(code(status));
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return stopped,
                Err(_) => {
                    // Without children there is nothing to wait for.
                    self.ended.get_or_insert(Code::IO);
                    return None;
                }
            }
        }
    }
}

fn code(status: WaitStatus) -> Code {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Code::of_signal(signal),
        (None, None) => Code(u8::MAX),
    }
}
