//! Encoded commands on their way to a socket, while more commands are encoded behind them.

use std::io;
use std::sync::Weak;

/// A socket that never blocks and that any thread may write to.
pub(crate) trait Sink: Send + Sync {
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// The bytes of some commands, and how many of them have been sent.
pub(crate) struct Outbound {
    /// Only the connection keeps its socket. When it is closed, nothing more is sent.
    sink: Weak<dyn Sink>,
    bytes: Vec<u8>,
    sent: usize,
    outcome: io::Result<()>,
}

impl Outbound {
    /// These bytes, of which so many have been sent.
    pub(crate) fn new(sink: Weak<dyn Sink>, bytes: Vec<u8>, sent: usize) -> Self {
        Self { sink, bytes, sent, outcome: Ok(()) }
    }

    /// Sends what the socket takes now.
    pub(crate) fn send(&mut self) {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let Some(sink) = self.sink.upgrade() else { return };
            match sink.write(rest) {
                Ok(0) => return self.outcome = Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.outcome = Err(error),
            }
        }
    }

    /// Whether nothing is left to be sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent >= self.bytes.len()
    }

    /// The bytes, how many of them have been sent, and whether the socket still works.
    pub(crate) fn into_parts(self) -> (Vec<u8>, usize, io::Result<()>) {
        (self.bytes, self.sent, self.outcome)
    }
}
