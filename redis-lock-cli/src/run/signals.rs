//! The signals that would end this process.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Those that people send to a command. Each ends a process that does not expect it, and the
/// command would run on unprotected if that were this one.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
    user1: Signal,
    user2: Signal,
}

impl Signals {
    /// From now on they end this process no more.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// The next one that arrives.
    pub(crate) async fn next(&mut self) -> Number {
        tokio::select! {
            _ = self.interrupt.recv() => Number::INT,
            _ = self.terminate.recv() => Number::TERM,
            _ = self.hang_up.recv() => Number::HUP,
            _ = self.quit.recv() => Number::QUIT,
            _ = self.user1.recv() => Number::USR1,
            _ = self.user2.recv() => Number::USR2,
        }
    }
}
