//! The command that runs under the lock.

use std::ffi::{OsStr, OsString};
use std::io::stdin;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use redis_lock_core::Guard;
use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};
use rustix::termios::tcgetpgrp;
use tokio::process::Command;
use tokio::time::timeout;

use crate::exit::{Code, Failure};

pub(crate) struct Child {
    process: tokio::process::Child,
    pid: Option<Pid>,
    /// Whether it leads a process group of its own.
    leads: bool,
}

impl Child {
    pub(crate) fn spawn(command: &[OsString], guard: &Guard) -> Result<Self, Failure> {
        // The command line's parser asks for one word at least.
        let (name, arguments) = command
            .split_first()
            .map_or_else(|| (OsStr::new(""), command), |(name, rest)| (&**name, rest));
        let leads = !is_in_foreground();
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env("REDIS_LOCK_KEY", guard.key())
            .env("REDIS_LOCK_TOKEN", guard.token().to_string());
        match guard.fence() {
            Some(fence) => command.env("REDIS_LOCK_FENCE", fence.to_string()),
            // That of a lock around this one would be taken for its own.
            None => command.env_remove("REDIS_LOCK_FENCE"),
        };
        if leads {
            command.process_group(0);
        }
        let failed = |error| Failure::Command { name: name.to_string_lossy().into_owned(), error };
        let process = command.spawn().map_err(failed)?;
        let pid = process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { process, pid, leads })
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> Result<Code, Failure> {
        Ok(code(self.process.wait().await?))
    }

    /// Passes a signal on.
    pub(crate) fn pass_on(&self, signal: Signal) {
        // The terminal sends these to its whole foreground, the command included.
        if self.leads || !matches!(signal, Signal::INT | Signal::QUIT) {
            self.send(signal);
        }
    }

    /// Ends it, by force after `grace`, and what it started as far as that can be found.
    pub(crate) async fn stop(&mut self, grace: Duration) -> Result<Code, Failure> {
        self.send(Signal::TERM);
        let ended = timeout(grace, self.process.wait()).await;
        if ended.is_err() || self.leads {
            self.send(Signal::KILL);
        }
        match ended {
            Ok(ended) => Ok(code(ended?)),
            Err(_) => self.ended().await,
        }
    }

    fn send(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        // One that has ended meanwhile needs no signal.
        let _ =
            if self.leads { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
    }
}

/// Whether this process is in the foreground of a terminal. Then the command must stay in the same
/// process group: another one could not read from the terminal.
fn is_in_foreground() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

fn code(status: ExitStatus) -> Code {
    match (status.code(), status.signal()) {
        (Some(code), _) => Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Code::of_signal(signal),
        (None, None) => Code(u8::MAX),
    }
}
